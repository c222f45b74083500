-- include: now, int, read_meta
-- Nothing starts for `duration_ms`, as when an outside API said "too many requests". A limit that lasts longer stays.
local function limit_starts(meta, duration_ms)
    local until_ms = now + duration_ms
    if duration_ms > 0 and until_ms > tonumber(meta.limited_until or 0) then
        set_meta('limited_until', int(until_ms))
    end
end
