"""A link with a delay between two network interfaces of this computer.

    python delay_link.py NAME NAME MILLISECONDS

Creates two TAP interfaces with these names in the current network namespace, prints ``ready``, and
forwards each frame from one to the other after the delay. The interfaces may be moved to other
namespaces. They are removed when the process ends.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_MAX_FRAME_BYTES = 65536


def open_interface(name: str) -> int:
    """Create a TAP interface; return the descriptor that reads and writes its frames."""
    interface = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    request = struct.pack("16sH14x", name.encode(), _IFF_TAP | _IFF_NO_PI)
    fcntl.ioctl(interface, _TUNSETIFF, request)
    return interface


def forward_frames(interfaces: tuple[int, int], delay: float) -> None:
    """Forward frames between two interfaces after a delay in seconds; never return."""
    peers = {interfaces[0]: interfaces[1], interfaces[1]: interfaces[0]}
    queue: deque[tuple[float, int, bytes]] = deque()  # time, destination, frame
    while True:
        now = time.monotonic()
        while queue and queue[0][0] <= now:
            _, interface, frame = queue.popleft()
            try:
                os.write(interface, frame)
            except OSError:
                continue  # an interface that is down drops frames, like a real one
        timeout = max(0.0, queue[0][0] - now) if queue else None
        for interface in select.select(interfaces, [], [], timeout)[0]:
            try:
                frame = os.read(interface, _MAX_FRAME_BYTES)
            except OSError:
                continue
            queue.append((time.monotonic() + delay, peers[interface], frame))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__ or "see the first lines of scripts/delay_link.py")
    interfaces = open_interface(sys.argv[1]), open_interface(sys.argv[2])
    print("ready", flush=True)
    forward_frames(interfaces, float(sys.argv[3]) / 1e3)
