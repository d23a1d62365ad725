"""``python -m cec_mpi``."""

import sys

from cec_mpi.cli import main

sys.exit(main())
