#!/usr/bin/env python3
"""test_goldens_gemma3: test_goldens.py for Gemma3-270M. A script of its own, so that the two run side by side."""
import sys

from test_goldens import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], ("gemma3",)))
