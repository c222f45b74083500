-- include: prefix, now, int, job_record, recover_job, gather
-- Jobs whose lease ran out go back to their old place, or fail when that happened too often.
-- A gap in these looks means the server, or all of us, were away: then everyone gets one lease of grace.

local function is_grace(meta, lease_ms, interval_ms)
    local looked_at = meta.looked_at
    if looked_at > 0 and now - looked_at > math.max(lease_ms / 4, 3 * interval_ms) then
        meta.grace_until, meta.is_changed = now + lease_ms, true
    end
    if math.abs(now - looked_at) >= interval_ms / 2 then
        meta.looked_at, meta.is_changed = now, true
    end
    local left = meta.grace_until - now
    if left > lease_ms then -- of a caller with longer leases, or from before the clock was set back
        meta.grace_until, meta.is_changed = now + lease_ms, true
    end
    return left > 0
end

local function recover_stalled(meta, lease_ms, interval_ms, limit)
    if is_grace(meta, lease_ms, interval_ms) then
        return 0
    end
    settle_set('active')
    local ids = redis.call('ZRANGEBYSCORE', prefix .. 'active', '-inf', int(now), 'LIMIT', 0, limit)
    for _, id in ipairs(ids) do
        recover_job(load_job(id))
    end
    return #ids
end
