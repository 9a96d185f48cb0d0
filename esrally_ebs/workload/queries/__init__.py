"""Turns query logs into a Rally track that sends the same queries.

logs (files to lines) -> formats (lines to searches) -> shards (lines of one request made one again) ->
prepare (what can be replayed, its template, ``dates`` fixed) -> ordering (by time) -> output (the track).
``replay`` hands the requests to Rally.
"""

from esrally_ebs.workload.queries.formats import FORMATS
from esrally_ebs.workload.queries.importing import import_logs, require_known_format, timed_requests
from esrally_ebs.workload.queries.output import ImportSummary
from esrally_ebs.workload.queries.prepare import Options

__all__ = ["FORMATS", "ImportSummary", "Options", "import_logs", "require_known_format", "timed_requests"]
