"""What the library costs, beside floors and beside what a user would pick instead."""
