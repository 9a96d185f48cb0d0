"""What another volume would do to recorded requests, and the cheapest volume that keeps a bound.

recording.py   a session's trace and samples: which I/O belongs to which request
dependencies.py  what each request computes, and which I/Os it waits for
prediction.py  the same requests on another volume, with more memory, and on the recorded one: self-check
advice.py      every setting of the catalog: the cheapest that keeps the bound, and its neighbours
tables.py      that as a report, and the plan that races it

Without requests, only when limits would have been reached:

traces.py      what other tools traced, as a session's table of I/Os
usage.py       what a volume did by a log or a trace, and what other volumes' limits would have made of it
usage_tables.py  that as a report

Pure: everything said here is of volume models until it is measured on AWS.
"""
