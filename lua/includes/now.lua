-- The server's clock in ms: the only one that counts. NEVER is later than all of it.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local NEVER = 9007199254740991
