// What an interpreter does: calls, objects, maps, text, numbers, exceptions, generators.
function fib(n){return n<2?n:fib(n-1)+fib(n-2)}
class P{constructor(x,y){this.x=x;this.y=y} add(o){return new P(this.x+o.x,this.y+o.y)}}
function go(){
 let r=fib(17)
 let p=new P(0,0); for(let i=0;i<4000;i++)p=p.add(new P(i,2*i)); r+=p.x
 const d=new Map(); for(const w of "the quick brown fox jumps over the lazy dog ".repeat(100).split(" "))d.set(w,(d.get(w)||0)+1)
 for(const v of d.values())r+=v
 const o=[]; for(let i=0;i<300;i++)o.push({a:i,b:[i,i*1.5,String(i)],c:null})
 const t=JSON.stringify(o); r+=t.length+JSON.parse(t).length
 r+=[...t.matchAll(/(\d+)\.(\d)/g)].length
 let seed=1; const a=[]; for(let i=0;i<2000;i++){seed=(seed*1103515245+12345)%2147483648;a.push(seed)}
 a.sort((x,y)=>y-x); r+=a[0]%1000
 let x=1n; for(let i=1n;i<200n;i++)x*=i; r+=x.toString().length
 let s=""; for(let i=0;i<1000;i++)s+=i.toString(16)+"|"+(i*1.1).toFixed(3); r+=s.length
 for(let i=0;i<500;i++){try{null.x}catch(e){r++}}
 function*g(){for(let i=0;i<3000;i++)yield i*i} for(const v of g())r=(r+v)%1000003
 const u=new Uint8Array(5000); for(let i=0;i<u.length;i++)u[i]=i*7; r+=u.reduce((x,y)=>x+y,0)
 r+=o.map(q=>q.b[1]).filter(q=>q>50).reduce((x,y)=>x+y,0)
 return r
}
[go(),go(),go()].join(" ")+"\n"
