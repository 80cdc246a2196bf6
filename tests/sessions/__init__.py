"""The parts of which noxfile.py makes its sessions."""
