"""kazoo alone: a Lock whose session was lost."""

import os

from kazoo.client import KazooClient

hosts = os.environ["LOCKER_ADDRESS"]
client, other = KazooClient(hosts=hosts), KazooClient(hosts=hosts)
client.start()
other.start()
lock = client.Lock("/locks/stays")
lock.acquire()
for node in other.get_children("/locks/stays"):  # as the end of the session does
    other.delete("/locks/stays/" + node)
assert lock.contenders() == [], lock.contenders()
print("is_acquired" if lock.is_acquired else "knows", flush=True)
os._exit(0)
