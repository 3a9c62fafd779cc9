"""kazoo alone: acquire with a timeout of half a second, at a server that has been stopped."""

import os
import sys
import threading
import time

from kazoo.client import KazooClient

client = KazooClient(hosts=os.environ["LOCKER_ADDRESS"], timeout=1)
client.start()
print("connected", flush=True)
sys.stdin.readline()  # the server is stopped now
lock = client.Lock("/locks/x")
call = threading.Thread(target=lambda: lock.acquire(timeout=0.5), daemon=True)
call.start()
time.sleep(1)
lock.cancel()
call.join(3)
print("still waits" if call.is_alive() else "has returned", flush=True)
os._exit(0)
