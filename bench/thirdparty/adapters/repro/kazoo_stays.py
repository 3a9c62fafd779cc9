"""kazoo alone: a Lock whose session was lost."""

import os
import sys
import time

from kazoo.client import KazooClient

client = KazooClient(hosts=os.environ["LOCKER_ADDRESS"], timeout=1)
client.start()
lock = client.Lock("/locks/x")
lock.acquire()
print("connected", flush=True)
sys.stdin.readline()  # the server has deleted the node now
assert lock.contenders() == [], lock.contenders()
print("is_acquired" if lock.is_acquired else "knows", flush=True)
os._exit(0)
