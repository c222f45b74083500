"""The scripts with another clock: time is what stands in a key, and what a script lets expire follows it.

The server itself knows only its own clock, so a set one lies decades ahead: nothing expires by itself, and
`expire` removes what a moved clock has passed. Everything else of the scripts stays as it is.
"""

from typing import Any

EPOCH_MS = 2_000_000_000_000
"""Where a set clock begins: May 2033."""

_SHIM = r"""
local clock_key
local function in_set_clock(real)
local redis = setmetatable({}, { __index = real })
local function set_clock()
    return tonumber(real.call('GET', clock_key))
end
local function in_clock(name, args)
    if name == 'TIME' then
        local at = set_clock()
        return { string.format('%.0f', math.floor(at / 1000)), string.format('%.0f', at % 1000 * 1000) }
    end
    if name == 'SET' then
        for i = 3, #args - 1 do
            local unit = ({ PX = 1, EX = 1000 })[args[i]]
            if unit then
                args[i], args[i + 1] = 'PXAT', string.format('%.0f', set_clock() + args[i + 1] * unit)
            end
        end
    elseif name == 'PEXPIRE' or name == 'EXPIRE' then
        local unit = name == 'EXPIRE' and 1000 or 1
        name, args[2] = 'PEXPIREAT', string.format('%.0f', set_clock() + args[2] * unit)
    elseif name == 'XADD' then
        for i = 2, #args do
            if args[i] == '*' then
                args[i] = string.format('%.0f-*', set_clock())
                local reply = real.pcall('XADD', unpack(args))
                if type(reply) == 'table' then -- the clock stands before the last entry: a server goes on from that
                    local info = real.call('XINFO', 'STREAM', args[1])
                    for j = 1, #info, 2 do
                        if info[j] == 'last-generated-id' then
                            args[i] = string.match(info[j + 1], '^%d+') .. '-*'
                        end
                    end
                    reply = real.call('XADD', unpack(args))
                end
                return reply
            end
        end
    end
    return nil, name, args
end
redis.call = function(command, ...)
    local reply, name, args = in_clock(string.upper(command), { ... })
    if reply then
        return reply
    end
    return real.call(name, unpack(args))
end
redis.pcall = function(command, ...)
    local reply, name, args = in_clock(string.upper(command), { ... })
    if reply then
        return reply
    end
    return real.pcall(name, unpack(args))
end
return redis
end
"""
_BEFORE_ALL = "    if not ALL_ENDED then"
_FROM_THE_SERVER = "from_the_server()\n    end\n"

_EXPIRE = r"""
local prefix, at, gone = string.sub(KEYS[1], 1, -5), tonumber(ARGV[1]), 0
redis.call('SET', prefix .. 'clock', ARGV[1])
for _, key in ipairs(redis.call('KEYS', prefix .. '*')) do
    local ends = redis.call('PEXPIRETIME', key)
    if ends >= 0 and ends < at then
        gone = gone + redis.call('DEL', key)
    end
end
return gone
"""


def with_set_clock(text: str) -> str:
    """A library's text that reads `clock` instead of the server's time."""
    got, begin = text.index(_FROM_THE_SERVER) + len("from_the_server()\n"), text.index(_BEFORE_ALL)
    of_the_call = "    clock_key = string.sub(KEYS[1], 1, -5) .. 'clock'\n"
    return f"{_SHIM}{text[:got]}        redis = in_set_clock(redis)\n{text[got:begin]}{of_the_call}{text[begin:]}"


def set_clock(client: Any, prefix: str, at_ms: int) -> int:
    """Set the clock and remove the keys whose end has passed; returns how many those were."""
    return int(client.eval(_EXPIRE, 1, f"{prefix}meta", at_ms))
