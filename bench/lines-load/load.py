"""Some work for a Python interpreter: calls, classes, JSON, regular expressions, sorting."""
import collections, heapq, json, re, sys


class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __lt__(self, other):
        return (self.x, self.y) < (other.x, other.y)


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


for i in range(int(sys.argv[1])):
    fib(15)
    text = json.dumps([{"name": "n%d" % k, "list": list(range(9)), "x": k / 7} for k in range(200)])
    json.loads(text)
    re.sub("n([12]*)[0-9]", r"<\1>", text)
    words = collections.Counter(text.split(","))
    sorted(words, key=lambda s: s[::-1])
    heap = [Point(k * 7919 % 1009, k) for k in range(300)]
    heapq.heapify(heap)
    while heap:
        heapq.heappop(heap)
