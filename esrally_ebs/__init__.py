"""Compare the volumes under Elasticsearch with Rally: fio, cold searches, causes and price in one session."""

__version__ = "0.1.0"
