"""The conversion rules once more, slow and obvious: plain Python that shares no code with ``udfs``.

``Oracle`` judges points as objects, one rule a function named after it; ``scenarios`` makes random clients;
``wire`` turns their pushes into payloads; ``compare`` lays the engine's rows beside the oracle's.
Where the rules leave room, READINGS.md says how they are read here.
"""
