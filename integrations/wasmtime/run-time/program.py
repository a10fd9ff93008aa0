# What an interpreter does: calls, objects, dictionaries, text, numbers, exceptions, generators.
import json,re,hashlib,random
random.seed(1)
def fib(n): return n if n<2 else fib(n-1)+fib(n-2)
class P:
    def __init__(s,x,y): s.x=x;s.y=y
    def __add__(s,o): return P(s.x+o.x,s.y+o.y)
def go():
    r=fib(15)
    p=P(0,0)
    for i in range(2000): p=p+P(i,2*i)
    r+=p.x
    d={}
    for w in ("the quick brown fox jumps over the lazy dog "*50).split(): d[w]=d.get(w,0)+1
    r+=sum(d.values())
    o=[{"a":i,"b":[i,i*1.5,str(i)],"c":None} for i in range(150)]
    t=json.dumps(o); o2=json.loads(t); r+=len(t)+(o==o2)
    r+=len(re.findall(r"(\d+)\.(\d)",t))
    s=sorted((random.random() for _ in range(1500)),key=lambda x:-x); r+=int(s[0]*1000)
    r+=int(hashlib.md5(t.encode()).hexdigest()[:4],16)
    x=1
    for i in range(1,200): x*=i
    r+=len(str(x))
    r+=sum(len(f"{i:5d}|{i*1.1:.3f}") for i in range(500))
    try:
        for i in range(300):
            try: d[i]
            except KeyError: r+=1
    finally: pass
    g=(i*i for i in range(2000)); r+=sum(g)%1000
    return r
print(go(),go())
