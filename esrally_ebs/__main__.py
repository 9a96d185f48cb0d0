"""``python -m esrally_ebs`` is ``esrally-ebs``."""

import sys

from esrally_ebs.cli import main

sys.exit(main())
