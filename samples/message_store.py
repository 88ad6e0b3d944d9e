"""A message store as a phone keeps it: chats, messages, read marks, drafts, deletions. Deterministic."""

import random
import sqlite3
import sys

random.seed(20261121)
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.executescript(
    """
    PRAGMA page_size = 4096;
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    CREATE TABLE chat(id INTEGER PRIMARY KEY, name TEXT, unread INTEGER, last INTEGER, draft TEXT);
    CREATE TABLE message(id INTEGER PRIMARY KEY, chat INTEGER, sent INTEGER, state INTEGER, body TEXT);
    CREATE INDEX by_chat ON message(chat, sent);
    CREATE TABLE thumbnail(message INTEGER PRIMARY KEY, data BLOB);
    """
)
CHATS = 300
db.execute("BEGIN")
for chat in range(CHATS):
    db.execute("INSERT INTO chat VALUES(?, ?, 0, 0, '')", (chat, f"chat {chat}"))
db.execute("COMMIT")
words = [f"word{n:03}" for n in range(500)]
clock, message = 1_700_000_000, 0
for step in range(9000):
    clock += random.randrange(1, 600)
    # A few chats take most of the traffic.
    chat = min(int(random.paretovariate(0.9)) - 1, CHATS - 1)
    action = random.random()
    db.execute("BEGIN")
    if action < 0.70:
        message += 1
        body = " ".join(random.choices(words, k=random.randrange(3, 60)))
        db.execute("INSERT INTO message VALUES(?, ?, ?, 0, ?)", (message, chat, clock, body))
        if random.random() < 0.08:
            db.execute("INSERT INTO thumbnail VALUES(?, ?)", (message, random.randbytes(random.randrange(2000, 9000))))
        db.execute("UPDATE chat SET unread = unread + 1, last = ?, draft = '' WHERE id = ?", (clock, chat))
    elif action < 0.90:
        db.execute("UPDATE message SET state = 1 WHERE chat = ? AND state = 0", (chat,))
        db.execute("UPDATE chat SET unread = 0 WHERE id = ?", (chat,))
    elif action < 0.97:
        db.execute("UPDATE chat SET draft = ? WHERE id = ?", (" ".join(random.choices(words, k=12)), chat))
    else:
        old = "SELECT id FROM message WHERE chat = ? ORDER BY sent LIMIT 20"
        db.execute(f"DELETE FROM thumbnail WHERE message IN ({old})", (chat,))
        db.execute(f"DELETE FROM message WHERE id IN ({old})", (chat,))
    db.execute("COMMIT")
db.close()
