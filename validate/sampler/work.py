"""Work of many sorts for the sampler: python3 work.py SECONDS."""
import ctypes, hashlib, json, re, sys, threading, time, zlib

def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

def nested(n):
    return [] if n == 0 else [nested(n - 1), {"n": n, "s": "x" * n}]

COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
libc = ctypes.CDLL(None)

def c_sort(n):
    numbers = (ctypes.c_int * n)(*[i * 7919 % 10007 for i in range(n)])
    libc.qsort(numbers, n, ctypes.sizeof(ctypes.c_int), COMPARE(lambda a, b: a[0] - b[0]))

class Item:
    def __init__(self, key):
        self.key = key
    def __lt__(self, other):
        return self.key < other.key

def work():
    fib(18)
    for _ in range(20):
        json.loads(json.dumps(nested(30)))
    re.findall(r"(\w+)\s(?:a|b|c)+?(\d{2,})", "abc aab123 " * 500)
    sorted([Item(i * 7919 % 1009) for i in range(1000)])
    c_sort(300)
    data = bytes(range(256)) * 400
    zlib.decompress(zlib.compress(data))
    hashlib.sha256(data * 10).hexdigest()
    "".join(map(str, range(5000)))
    int("9" * 2000) ** 3

end = time.monotonic() + float(sys.argv[1])
def loop():
    while time.monotonic() < end:
        work()
threads = [threading.Thread(target=loop) for _ in range(3)]
for t in threads:
    t.start()
loop()
for t in threads:
    t.join()
