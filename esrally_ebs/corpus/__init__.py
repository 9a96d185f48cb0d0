"""The synthetic NOAA corpus: weather reports that to a search look like those of Rally's ``noaa`` track."""

from esrally_ebs.corpus.files import FORMAT, Corpus, ensure, generate

__all__ = ["FORMAT", "Corpus", "ensure", "generate"]
