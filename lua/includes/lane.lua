-- include: prefix, check_lease, take_next
-- What a lane's last call did: a call sent again gets the same outcomes, and the claims it still holds.
local LANE_MS = 120000

local function lane_answer(lane, token)
    local stored = redis.call('GET', prefix .. 'answer:' .. lane)
    local last = stored and cjson.decode(stored)
    if last and last.token == token then
        return last
    end
end

local function remember_lane(lane, token, outcomes, claims, sleep_ms)
    local held = {}
    for i, job in ipairs(claims) do
        held[i] = { job.id, job.lease }
    end
    redis.call('SET', prefix .. 'answer:' .. lane,
        cjson.encode({ token = token, outcomes = outcomes, claims = held, sleep_ms = int(sleep_ms) }), 'PX', LANE_MS)
end

local function claim_replies(jobs)
    local replies = {}
    for i, job in ipairs(jobs) do
        replies[i] = claim_reply(job)
    end
    return replies
end

local function still_held(claims)
    local jobs = {}
    for _, claim in ipairs(claims) do
        jobs[#jobs + 1] = check_lease(claim[1], claim[2])
    end
    return claim_replies(jobs)
end
