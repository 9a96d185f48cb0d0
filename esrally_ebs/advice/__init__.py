"""What another volume would do to recorded requests, and which is the cheapest that keeps a bound.

    recording.py   a session's trace and samples: which I/O belongs to which request
    dependencies.py  what each request computes, and which I/Os it waits for
    memory.py      which of those I/Os a larger page cache would have answered
    prediction.py  the same requests on another volume, and on the one recorded: the self-check
    advice.py      every setting of the catalog: the cheapest that keeps the bound, and its neighbours

Pure: everything said here is of volume models until it is measured on AWS.
"""
