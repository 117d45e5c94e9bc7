#!/usr/bin/env python3
"""A server without an SDK: JSON-RPC, a line each. Its tools come on two pages, and one has no schema to speak of."""

import json
import random
import sys

NUMBERS = {"type": "object", "properties": {"sides": {"type": "integer", "minimum": 2}, "seed": {"type": "integer"}}}
TOOLS = [
    {"name": "roll", "description": "Roll a die.", "inputSchema": {**NUMBERS, "required": ["sides", "seed"]}},
    {"name": "roll_over", "inputSchema": {"type": "object"}},
]


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "dice", "version": "1"},
        }
    if method == "tools/list":
        if params.get("cursor") == "more":
            return {"tools": TOOLS[1:]}
        return {"tools": TOOLS[:1], "nextCursor": "more"}
    if method == "tools/call" and params["name"] == "roll":
        given = params["arguments"]
        number = random.Random(given["seed"]).randint(1, max(2, given["sides"]))
        return {"content": [{"type": "text", "text": str(number)}]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": "The die fell off the table."}], "isError": True}
    return None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answer(request["method"], request.get("params") or {})
    reply = {"result": result} if result is not None else {"error": {"code": -32601, "message": "no such method"}}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}), flush=True)
