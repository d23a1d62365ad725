"""Tags of messages."""

from __future__ import annotations

ORDER, CONTENT, REPORT, VALUES, OBJECT, NOTE = 21, 22, 23, 24, 25, 26
