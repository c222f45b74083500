-- The keys of this queue are built from the declared one; the tag keeps them in its slot.
local prefix = string.sub(KEYS[1], 1, -5)
