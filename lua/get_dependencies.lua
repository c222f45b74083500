#!lua flags=no-writes
-- Reads a page of what became of a job's children.
--
-- KEYS
--   meta    string  the queue's record
--   none    -       never created
-- ARGV
--   id      text    the parent
--   cursor  text    "0" = from the start, else that of the page before
--   count   number  about how many; a small family comes whole
--   kinds   text    which: letters of p (pending), c (completed), f (failed), i (ignored failure)
-- Returns
--   {cursor, {"<queue>:<id>", kind and content, …}}; cursor "0" = no more; content: the result ("" = read that of the
--   child itself), or the error
-- Errors
--   LAYOUT_MISMATCH, JOB_NOT_FOUND
-- Events
--   none
-- include: read_meta, find_job
local _, _ = KEYS[1], KEYS[2]
local id, cursor, count, kinds = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local MAX_ROUNDS = 20

local _, refusal = read_meta()
if refusal then
    return refusal
end
local _, missing = find_job(id)
if missing then
    return missing
end
local found, rounds = {}, 0
repeat
    local page = redis.call('HSCAN', prefix .. 'children:' .. id, cursor, 'COUNT', count)
    cursor, rounds = page[1], rounds + 1
    for i = 1, #page[2], 2 do
        if string.find(kinds, string.sub(page[2][i + 1], 1, 1), 1, true) then
            found[#found + 1] = page[2][i]
            found[#found + 1] = page[2][i + 1]
        end
    end
until cursor == '0' or #found >= 2 * count or rounds == MAX_ROUNDS
return { cursor, found }
