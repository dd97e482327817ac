"""``python -m tinydist run``: scripts that are written for torchrun or ``multiprocessing``, on simulated ranks.

command.py           the command: its options, exit status, summary
torchrun_options.py  torchrun's options, and what each of them means here
placement.py         nodes x processes per node, on a cluster
job.py               the program on its ranks; or a script whose processes are the ranks
program.py           a script, or a module as python -m runs it, with a __main__ of the rank's own
interpreter.py       what each rank has of its own: modules, argv, path, folder, loggers
process_calls.py     atexit, signals, os._exit on a rank

spawning.py          spawn_launches: processes that a program starts are ranks
child.py             multiprocessing.Process: what it begins with, when it runs
handover.py          what a process hands to another: copies, and shared memory
shared_objects.py    queues, events, barriers, locks
elastic.py           torchrun that is called inside of a script

failures.py          tracebacks of the script's own lines, and the root cause
summary.py           time, bytes, memory, stragglers in a few lines; report.py: as pictures and numbers
forecast.py          what a step takes at its real size, on tensors without data
processes.py         --backend gloo: the same script under torchrun itself
silence.py           the output of ranks that are not shown
"""
