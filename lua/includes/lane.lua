-- include: prefix, int, check_lease, take_next
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

-- Kept as `<token> <sleep_ms> <deaf>`, then a line of outcomes and one of the ids of the claims: the k-th claim's lease
-- is `<token>.<k>`. orchestrator/worker/keeper_process.py reads it, too.
local function read_lane(text)
    local token, sleep_ms, deaf, outcome_words, id_words = string.match(text, '^(%S+) (%S+) (%S+)\n([^\n]*)\n(.*)$')
    local last = { sleep_ms = sleep_ms, deaf = deaf, outcomes = {}, claims = {} }
    for outcome in string.gmatch(outcome_words, '%S+') do
        last.outcomes[#last.outcomes + 1] = outcome
    end
    for id in string.gmatch(id_words, '%S+') do
        last.claims[#last.claims + 1] = { id, token .. '.' .. int(#last.claims + 1) }
    end
    return last
end

local function lane_answer(lane, token, finishes)
    local stored = redis.call('GET', prefix .. 'answer:' .. lane)
    local last_token = stored and string.match(stored, '^%S+')
    if last_token == token then
        return read_lane(stored)
    end
    if not last_token or #last_token == #token and last_token < token then
        return nil -- so many digits, and what comes after them is as long: the texts are in the order of the numbers
    end
    local number, newest = call_number(token), call_number(last_token)
    if number and newest and number < newest then
        return late_answer(finishes)
    end
end

local function joined(words)
    return #words == 1 and words[1] or table.concat(words, ' ')
end

local function remember_lane(lane, token, outcomes, claims, sleep_ms, is_deaf)
    local ids = {}
    for i = 1, #claims do
        ids[i] = claims[i].id
    end
    redis.call('SET', prefix .. 'answer:' .. lane, token .. ' ' .. int(sleep_ms) .. (is_deaf and ' 1\n' or ' 0\n')
        .. joined(outcomes) .. '\n' .. joined(ids), 'PX', LANE_MS)
end

local function claim_replies(jobs)
    local replies = {}
    for i = 1, #jobs do
        replies[2 * i - 1], replies[2 * i] = claim_reply(jobs[i])
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
