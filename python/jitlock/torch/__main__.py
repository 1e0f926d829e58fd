"""``python -m jitlock.torch doctor``"""

from __future__ import annotations

import sys

from ._doctor import main

sys.exit(main())
