"""Some work for python3: calls, JSON, regular expressions, sorting, compression."""
import json, re, zlib


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


for i in range(4):
    fib(22)
    text = json.dumps([{"name": "n%d" % k, "list": list(range(20))} for k in range(5000)])
    json.loads(text)
    re.findall("n(1|2)*[0-9]", text)
    sorted(text.split(","), key=lambda s: s[::-1])
    zlib.compress(text.encode())
