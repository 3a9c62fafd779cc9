"""kazoo alone: the error of a Lock that was cancelled while it waited for another's."""

import os
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import CancelledError

client = KazooClient(hosts=os.environ["LOCKER_ADDRESS"])
client.start()
client.Lock("/locks/x").acquire()
waiting = client.Lock("/locks/x")
threading.Timer(0.3, waiting.cancel).start()
try:
    waiting.acquire()
except CancelledError as e:
    assert e.args == (), e.args
    print("cancelled, and no word of the holder")
os._exit(0)
