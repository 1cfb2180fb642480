import time, sys
from tests.support.interleavings import *
from tests.support.model_jobs import *
from tests.support.model_store import *
from tests.support.protocol_invariants import *
bound = None if sys.argv[1]=="all" else int(sys.argv[1])
wake = sys.argv[2]=="wake"
with model():
    d,end=run_alone("p0", lambda: ingest(1,1), empty_lake())
    if "crashed" in sys.argv: d=d.changed({p:None for p in d.files if p.endswith(".released")})
    ps=[Process("p1", lambda: ingest(2,1)), Process("p2", lambda: ingest(3,2,take_over=True))]
    inv=Invariants(3, wake=wake)
    t=time.time()
    r=explore(ps,d,inv,is_invisible,bound,int(sys.argv[3]))
    print(time.time()-t, "s", r.states, r.transitions, r.disks, r.runs, inv.recoveries, r.whole)
    for e,n in r.ends.items(): print(n, e[:200])
    print(r.found)
