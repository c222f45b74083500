-- include: prefix, check_lease, take_next
-- What a lane's last call did: a call sent again gets the same outcomes, and the claims it still holds.
-- Tokens of lanes are `<n>-<random>`, n counting the lane's calls: a copy that comes after a later call does nothing.
local LANE_MS = 120000

local function call_number(token)
    return tonumber(string.match(token, '^(%d+)%-') or '')
end

local function late_answer(finishes)
    local outcomes = {}
    for i = 1, finishes do
        outcomes[i] = 'LEASE_LOST'
    end
    return { outcomes = outcomes, claims = {}, sleep_ms = '-1', deaf = '0' }
end

local function lane_answer(lane, token, finishes)
    local stored = redis.call('GET', prefix .. 'answer:' .. lane)
    local last = stored and cjson.decode(stored)
    if not last then
        return nil
    elseif last.token == token then
        return last
    end
    local number, newest = call_number(token), call_number(last.token)
    if number and newest and number < newest then
        return late_answer(finishes)
    end
end

local function remember_lane(lane, token, outcomes, claims, sleep_ms, is_deaf)
    local held = {}
    for i, job in ipairs(claims) do
        held[i] = { job.id, job.lease }
    end
    redis.call('SET', prefix .. 'answer:' .. lane,
        cjson.encode({ token = token, outcomes = outcomes, claims = held, sleep_ms = int(sleep_ms),
            deaf = is_deaf and '1' or '0' }), 'PX', LANE_MS)
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
