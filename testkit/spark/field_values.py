"""Values that an index leaves out."""

from __future__ import annotations

NOT_INDEXED = [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b"null", "no JSON object"),
    (b"7", "no JSON object"),
    (b'[{"n": 1}]', "no JSON object"),
    (b'{"n": 1} {"n": 2}', "not JSON"),
    (b'{"n": 1}}', "not JSON"),
    (b"{'n': 1}", "not JSON"),
    (b'{"x": NaN}', "not JSON"),
    (b'{"x": -Infinity}', "not JSON"),
    (b'{"s": "a\tb"}', "not JSON"),
    (b'\xef\xbb\xbf{"n": 1}', "not JSON"),
    (b'{"s": "\xff"}', "not UTF-8"),
    (b'{"x": %s}' % (b"[" * 100_000), "not JSON"),
    (b'{"n": "1"}', "n is no BIGINT"),
    (b'{"n": 1.0}', "n is no BIGINT"),
    (b'{"n": true}', "n is no BIGINT"),
    (b'{"n": 9223372036854775808}', "n is no BIGINT"),
    (b'{"d": "1"}', "d is no DOUBLE"),
    (b'{"d": true}', "d is no DOUBLE"),
    (b'{"s": 1}', "s is no STRING"),
    (b'{"s": {"a": 1}}', "s is no STRING"),
    (b'{"b": 1}', "b is no BOOLEAN"),
    (b'{"o": 5}', "o.i is within something else than an object"),
    (b'{"o": [1]}', "o.i is within something else than an object"),
]
