-- include: prefix
-- Remembered answers: a call sent twice under one token has one effect and one answer.
local ANSWER_MS = 60000

local function answered(token)
    return redis.call('GET', prefix .. 'answer:' .. token)
end

local function answer(token, text)
    redis.call('SET', prefix .. 'answer:' .. token, text, 'PX', ANSWER_MS)
    return text
end
