"""What is said to whoever sits there.

waiting.py      a line that says what is going on while the reader waits
shell.py        how the command line is written where it is printed
"""
