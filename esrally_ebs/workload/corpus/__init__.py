"""The corpus of the track: synthetic weather reports like those of Rally's ``noaa`` track, or NOAA's own."""

from esrally_ebs.workload.corpus.convert import convert
from esrally_ebs.workload.corpus.files import FORMAT, RENDERERS, Corpus, ensure, generate

__all__ = ["FORMAT", "RENDERERS", "Corpus", "convert", "ensure", "generate"]
