import sys
sys.setrecursionlimit(10**9)
class A:
    def __add__(s, o): return s - o
    def __sub__(s, o): return s | o
    def __or__(s, o): return s & o
    def __and__(s, o): return s ^ o
    def __xor__(s, o): return s << o
    def __lshift__(s, o): return s >> o
    def __rshift__(s, o): return s @ o
    def __matmul__(s, o): return s // o
    def __floordiv__(s, o): return s / o
    def __truediv__(s, o): return divmod(s, o)
    def __divmod__(s, o): return -s
    def __neg__(s): return +s
    def __pos__(s): return ~s
    def __invert__(s): return abs(s)
    def __abs__(s): return len(s)
    def __len__(s): return int(s)
    def __int__(s): return float(s)
    def __float__(s): return hash(s)
    def __hash__(s): return bool(s)
    def __bool__(s): return iter(s)
    def __iter__(s): return next(s)
    def __next__(s): return repr(s)
    def __repr__(s): return str(s)
    def __str__(s): return s < s
    def __lt__(s, o): return s + o
A() + A()
