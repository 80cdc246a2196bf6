"""Conformance tests that every backend must pass: a class for each chapter of the contract.

from hal_testing.conformance import *  # in a test file, with -p hal_testing.plugin
"""

from hal_testing.conformance.test_allocator import TestAllocator
from hal_testing.conformance.test_buffer import TestBuffer
from hal_testing.conformance.test_compile import TestCompile
from hal_testing.conformance.test_dtype import TestDtype
from hal_testing.conformance.test_event import TestEvent
from hal_testing.conformance.test_graph import TestGraph
from hal_testing.conformance.test_images import TestImages
from hal_testing.conformance.test_interchange import TestInterchange
from hal_testing.conformance.test_language import TestLanguage
from hal_testing.conformance.test_many import TestMany
from hal_testing.conformance.test_process import TestProcess
from hal_testing.conformance.test_program import TestProgram
from hal_testing.conformance.test_queue import TestQueue
from hal_testing.conformance.test_view import TestView

__all__ = [
    "TestAllocator", "TestBuffer", "TestCompile", "TestDtype", "TestEvent", "TestGraph",
    "TestImages", "TestInterchange", "TestLanguage", "TestMany", "TestProcess", "TestProgram",
    "TestQueue", "TestView",
]  # fmt: skip
