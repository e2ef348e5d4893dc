// Exceptions of D: destructors, finally, threads, fibers, chains, uncaught.
import core.thread, std.stdio, std.exception, std.conv;
class Mine : Exception { int n; this(int n) { super("mine"); this.n = n; } }
__gshared int finals;
struct Note { ~this() { import core.atomic; atomicOp!"+="(*cast(shared int*)&finals, 1); } }
int deep(int n) { Note x; scope(failure) { import core.atomic; atomicOp!"+="(*cast(shared int*)&finals, 1); } if (n == 0) throw new Mine(7); return deep(n - 1) + 1; }
int convert(string s) { try { return to!int(s); } catch (ConvException e) { return -1; } finally { finals++; } }
void main()
{
    int caught;
    foreach (i; 0 .. 2000) try { deep(i % 20); } catch (Mine m) { caught += m.n; }
    writeln(caught, " ", finals);
    foreach (i; 0 .. 200) caught += convert(i % 2 ? "12" : "x");
    writeln(caught);
    Thread[] ts;
    foreach (t; 0 .. 4) { auto th = new Thread({ foreach (i; 0 .. 500) try { deep(5); } catch (Exception e) {} }); th.start(); ts ~= th; }
    foreach (t; ts) t.join();
    writeln(finals);
    auto f = new Fiber({ foreach (i; 0 .. 5) { try { deep(3); } catch (Mine m) { writeln("fiber ", m.n); } Fiber.yield(); } deep(1); });
    foreach (i; 0 .. 5) f.call();
    try f.call(); catch (Mine m) writeln("out of a fiber ", m.n);
    try { try { deep(1); } finally { throw new Exception("second"); } } catch (Exception e) { writeln(e.msg, " ", e.next !is null); }
    deep(1);
}
