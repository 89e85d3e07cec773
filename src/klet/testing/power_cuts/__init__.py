"""Loss of power at every point of a program that writes files: the states that it may leave, and whether they are read.

`trace` runs the program under strace and reads its system calls, `disk` is a model of what a filesystem may keep of
them, `cuts` builds the states after each call and has them checked.
"""
