//! Mistakes in the bundled scripts that stories have to find.

/// Parts of the bundled scripts, and mistakes in their place that a story has to find.
pub const MISTAKES: &[(&str, &str)] = &[
    // A busy lock is granted.
    (
        "if redis.call('exists', KEYS[1]) == 0 then\n  redis.call('hset', KEYS[1], ARGV[2], 1)",
        "if true then\n  redis.call('hset', KEYS[1], ARGV[2], 1)",
    ),
    ("if free and (not head or head == owner) then", "if not head or head == owner then"),
    // A late release frees the lock of the next one.
    ("if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then", "if redis.call('del', KEYS[1]) == 0 then"),
    // The watchdog prolongs nothing.
    ("if redis.call('pttl', key) < lease_ms then", "if false then"),
    // A writer beside readers, readers beside a writer.
    (
        "if redis.call('exists', KEYS[1]) == 0 then\n  -- A user who may not release must not take the lock: a release",
        "if redis.call('hget', KEYS[1], 'mode') ~= 'write' then\n  -- A release",
    ),
    ("if mode == 'write' then\n  return {0", "if mode == 'none' then\n  return {0"),
    // More permits than there are; a permit that is taken twice.
    ("local suffices = free >= wanted", "local suffices = free + 1 >= wanted"),
    ("if not free or tonumber(free) < wanted then", "if not free then"),
    ("local free = redis.call('incrby', KEYS[1], removed)", "local free = redis.call('incrby', KEYS[1], removed + 1)"),
    ("free = redis.pcall('incrby', KEYS[1], ARGV[3])", "free = redis.pcall('incrby', KEYS[1], ARGV[3] * 2)"),
    // A lock without expiry.
    ("local set = redis.pcall('pexpire', KEYS[1], ARGV[1])", "local set = 1"),
    // The release of a re-entry that frees the whole lock.
    (
        "if tonumber(ARGV[2]) > 0 then\n  if redis.call('hexists', KEYS[1]",
        "if false then\n  if redis.call('hexists', KEYS[1]",
    ),
    (
        "if tonumber(ARGV[2]) > 0 then\n  if redis.call('hexists', lock",
        "if false then\n  if redis.call('hexists', lock",
    ),
    // A waiter that leaves and stays in the queue.
    (
        "local was_first = redis.call('lindex', queue, 0) == owner\nredis.call('lrem', queue, 0, owner)\nredis.call('zrem', deadlines, owner)\nredis.call('zrem', alive, owner)",
        "local was_first = false",
    ),
    // Tokens that do not grow; a leader beside another one.
    ("local token = math.max(last + 1, time[1] * 1000000 + time[2])", "local token = 7"),
    ("if redis.call('exists', KEYS[1]) == 0 then\n  local token", "if true then\n  local token"),
    // One value: granted beside another one, another one's given back, another one's renewed.
    ("if holder == ARGV[2] then", "if true then"),
    // Renewals of what is lost.
    // A reader that leaves and takes the others' time along.
    ("for i = count or 0, 1, -1 do", "for i = 1, 0 do"),
    // Several locks: taken though one is busy, given back though it is another one's.
    ("if #free + #ours < #KEYS then", "if false then"),
    ("if #values < #KEYS then", "if false then"),
    ("if holder == owner then\n    return OURS", "if true then\n    return OURS"),
    ("local left = deadline + skew_ms - now", "local left = deadline - 20000 - now"),
    // The fair lock is taken by whoever asks.
    ("if free and (not head or head == owner) then", "if free then"),
    // A latch that opens early, is set while it has a count, or wakes nobody.
    ("local left = math.max(tonumber(count) - 1, 0)", "local left = math.max(tonumber(count) - 2, 0)"),
    ("if count then\n  return 0\nend\nif ARGV[4]", "if ARGV[4]"),
    // A reader without the key that a Java client looks for; a waiter that Java drops from the queue.
    ("redis.call('set', KEYS[2], 1, 'px', lease_ms)\nlocal gives_back", "local gives_back"),
    // From here on they are seldom found: see `QUICKLY_FOUND`.
    ("if number == tonumber(ARGV[1]) then\n  return tonumber(answer)", "if false then\n  return tonumber(answer)"),
    ("if last == number then\n  return {1, free}", "if false then\n  return {1, free}"),
    ("if tonumber(redis.call('zscore', key, ARGV[i])) < ends then", "if false then"),
    ("if last == number then\n  return {1, tonumber(free", "if false then\n  return {1, tonumber(free"),
    ("local receivers = redis.pcall(ARGV[6], ARGV[4] .. ':' .. head, ARGV[5])", "local receivers = 0"),
    ("local receivers = redis.pcall(ARGV[8], ARGV[7], message)", "local receivers = 0"),
    ("if holder ~= value then", "if false then"),
    ("if held == 0 then", "if false then"),
    ("local deleted = redis.pcall('hdel', key, owner)", "local deleted = redis.pcall('del', key)"),
    (
        "redis.call('pexpire', KEYS[2], ARGV[2])\nredis.call('set', KEYS[2], string.format('%s %s'",
        "redis.call('set', KEYS[2], string.format('%s %s'",
    ),
    (
        "  if head_ends > now then\n    break\n  end\n  redis.call('zrem', deadlines, head)",
        "  do\n    break\n  end\n  redis.call('zrem', deadlines, head)",
    ),
    ("if last > number then\n  if suffices", "if false then\n  if suffices"),
    ("if taken > 0 then", "if false then"),
    ("if ARGV[1] ~= '' then\n  redis.pcall", "if false then\n  redis.pcall"),
    ("if not reads and redis.call('hexists', lock, owner .. ':write') == 0 then", "if false then"),
    ("if is_copy then", "if false then"),
    ("string.format('%.0f', now), 'LIMIT'", "string.format('%.0f', now + 5000), 'LIMIT'"),
    // Releases that wake nobody.
    ("local receivers = redis.pcall(ARGV[6], ARGV[4], ARGV[5])", "local receivers = 0"),
    ("if holder ~= ARGV[1] then", "if false then"),
    ("if holder ~= owner then\n    -- Redisson", "if false then\n    -- Redisson"),
    // Holds whose end is not seen by those who watch.
    (
        "    -- The read follows the write, so that a connection with tracking is told of later changes to the key.\n    redis.call('pttl', key)",
        "",
    ),
    // Refused by a full memory.
    (
        "redis.call('pexpire', KEYS[1], lease_ms)\nredis.call('hset', KEYS[1], ARGV[2], ARGV[3])",
        "redis.call('hset', KEYS[1], ARGV[2], ARGV[3])\nredis.call('pexpire', KEYS[1], lease_ms)",
    ),
    ("if tonumber(count) == 1 then\n  redis.pcall(ARGV[5]", "if false then\n  redis.pcall(ARGV[5]"),
    ("local taken_by_java_ms = 300000", "local taken_by_java_ms = 0"),
    // A lock that is handed on to two, or for the time of the hold before.
    ("  redis.call('hdel', KEYS[1], ARGV[1])\n  return 1", "  return 1"),
    ("local set = redis.pcall('pexpire', KEYS[1], ARGV[3])", "local set = 1"),
    // A release of one side that a full memory refuses.
    (
        "redis.call('pexpire', lock, writes > 0 and lease_ms or longest_ms)\nfor i",
        "redis.call('hset', lock, 'mode', writes > 0 and 'write' or 'read')\nredis.call('pexpire', lock, writes > 0 and lease_ms or longest_ms)\nfor i",
    ),
];

/// The number of mistakes that at least three of the first thirty stories find, each by itself. A change of the
/// library plays other stories, so rare finds would come and go; `make mistakes` looks for the others.
pub const QUICKLY_FOUND: usize = MISTAKES.len() - 27;
