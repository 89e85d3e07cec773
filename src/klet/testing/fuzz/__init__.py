"""Fuzzers of everything that reads bytes from outside (`scripts/fuzz`, docs/fuzzing.md)."""
