"""What is fuzzed: one module for each kind of bytes from outside."""
