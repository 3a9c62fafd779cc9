-- The tables and functions of the locks, for those who make them by hand: psql -f schema.sql. Whoever has
-- another name for the table, as table=jobs.locks has, gets the same from postgres.Schema("jobs.locks").
-- The driver makes them by itself if its user may. It is one transaction, and may be run again.
--
-- The name of a function ends with its version. A release that changes a function gives it a new name: programs
-- of several releases share a database, and each calls the functions that it knows.

-- PostgreSQL empties an unlogged table after a crash, on a standby that takes over, and in a backup of a
-- running server. The row with the empty key says since when the table is whole: see _whole.
-- Half of each page stays empty, so that a row is updated in its page, and no index is.
CREATE UNLOGGED TABLE IF NOT EXISTS public.locker_locks (
	key        bytea PRIMARY KEY,    -- SHA-256 of name, which may be longer than an index allows
	name       bytea NOT NULL,       -- bytea, because text holds no NUL
	era        bigint NOT NULL,      -- when the table became whole
	version    bigint NOT NULL,      -- moves on when a claim ends of which a request was not answered
	token      bigint NOT NULL,      -- of the last grant
	owner      bytea NOT NULL,       -- who was granted it: random bytes; '' if it was released; one byte 0: see _release
	metadata   bytea NOT NULL,
	expires_at timestamptz NOT NULL, -- or when it was released
	former     bytea NOT NULL,       -- the owner that released it last
	waited     boolean NOT NULL,     -- somebody may wait for it
	served     bigint NOT NULL       -- the place of the waiter that was granted it last; of the empty key: when the server started
) WITH (fillfactor = 50);

-- Who waits. The first 8 bytes of an owner are its Client.
CREATE UNLOGGED TABLE IF NOT EXISTS public.locker_locks_waiters (
	owner    bytea PRIMARY KEY,
	key      bytea NOT NULL,
	place    bigint NOT NULL,        -- in the order in which they came
	ttl      bigint NOT NULL,        -- in microseconds
	metadata bytea NOT NULL,
	UNIQUE (key, place)
);

-- Until when the waiters of a Client count.
CREATE UNLOGGED TABLE IF NOT EXISTS public.locker_locks_clients (
	client      bytea PRIMARY KEY,
	alive_until timestamptz NOT NULL
) WITH (fillfactor = 50);

-- The TTLs that Clients use. It is logged: it has to be there when the others are lost.
CREATE TABLE IF NOT EXISTS public.locker_locks_ttls (
	client     bytea NOT NULL,
	ttl        bigint NOT NULL,      -- in microseconds
	used_until timestamptz NOT NULL, -- no hold of it lasts longer
	PRIMARY KEY (client, ttl)
);

-- The holds that were ended by force. Their owners, who may not know yet, do not get them back when the tables
-- are lost. It is logged, too.
CREATE TABLE IF NOT EXISTS public.locker_locks_forced (
	owner      bytea PRIMARY KEY,
	expires_at timestamptz NOT NULL  -- when its hold would have expired
);

-- A row that another transaction has locked keeps a function from its work for half a second at most: requests
-- about other locks may be behind it.

-- Every statement of a function sees what others have committed before it began, under READ COMMITTED. So
-- one that follows the lock of a row sees what was done under that lock. Under the other isolation levels
-- it would not: there each change under a lock writes the row, so that those who come later fail, and are
-- run again. The clock is the server's, read when it is needed.

-- An operator that somebody else has put into a schema of the user's search_path may fit better than that of
-- pg_catalog, as one for bigint * interval does: the functions have none but pg_catalog in theirs.

-- The tables grow from empty to thousands of rows within seconds, and no plan that was made for an empty one, which
-- reads all of it, may outlive that: the functions have seqscan off. Where one has to read all of a table nevertheless,
-- the planner's penalty for that would have PostgreSQL compile the plan, which takes up to seconds: those have jit off.
-- Settings cost time at each call, so whole, adopt and settle inherit those of the functions that call them.

-- whole returns the row with the empty key. It begins an era if that is not there, or the server has been
-- started since: then rows may be old, or the clock may have been set. For the longest TTL in use, the grace,
-- nobody is granted a name but those who hold it. That ends sooner if the Clients that use the TTL close.
CREATE OR REPLACE FUNCTION public.locker_locks_whole_v1(OUT era bigint, OUT version bigint, OUT token bigint, OUT expires_at timestamptz, OUT started bigint)
LANGUAGE plpgsql AS $locker$
#variable_conflict use_column
BEGIN
	started := (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint;
	FOR round IN 1..100 LOOP
		SELECT t.era, t.version, t.token, t.expires_at INTO era, version, token, expires_at
			FROM public.locker_locks AS t WHERE t.key = '' AND t.served = started;
		IF FOUND THEN
			RETURN;
		END IF;
		INSERT INTO public.locker_locks AS t (key, name, era, version, token, owner, metadata, expires_at, former, waited, served)
			SELECT '', '', now.micros, 0, 0, '', '',
				clock_timestamp() + coalesce((SELECT max(u.ttl) FROM public.locker_locks_ttls AS u), 0) * interval '1 microsecond', '', false, started
			FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS micros) AS now
			ON CONFLICT (key) DO UPDATE SET era = greatest(t.era + 1, excluded.era), expires_at = excluded.expires_at, served = excluded.served
				WHERE t.served <> excluded.served;
	END LOOP;
	RAISE EXCEPTION 'the row with the empty key is there, but cannot be read: is there row level security?' USING ERRCODE = 'object_not_in_prerequisite_state';
END $locker$;

-- adopt brings a row of another era into this one. In the grace it is its owner's, or nobody's.
CREATE OR REPLACE FUNCTION public.locker_locks_adopt_v1(in_key bytea, in_era bigint) RETURNS void
LANGUAGE plpgsql AS $locker$
BEGIN
	UPDATE public.locker_locks AS t SET era = whole.era, version = greatest(t.version, whole.version),
		owner = CASE WHEN t.owner = '' AND whole.expires_at > clock_timestamp() THEN decode('00', 'hex') ELSE t.owner END,
		expires_at = greatest(whole.expires_at, least(t.expires_at,
			clock_timestamp() + coalesce((SELECT max(u.ttl) FROM public.locker_locks_ttls AS u), 0) * interval '1 microsecond'))
		FROM public.locker_locks AS whole WHERE t.key = in_key AND whole.key = '' AND whole.era = in_era AND t.era <> in_era;
END $locker$;

-- enter registers a TTL, and returns the era, and when the server started. It refuses tables that were altered: a
-- logged one shows old rows after a failover, and an unlogged one forgets the TTLs.
CREATE OR REPLACE FUNCTION public.locker_locks_enter_v1(in_client bytea, in_ttl bigint, in_again bigint, in_first boolean,
	OUT era bigint, OUT version bigint, OUT started bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $locker$
#variable_conflict use_column
DECLARE
	whole record;
	altered regclass;
BEGIN
	SELECT w.* INTO whole FROM public.locker_locks_whole_v1() AS w;
	SELECT c.oid INTO altered FROM public.locker_locks AS t JOIN pg_class AS c ON c.oid = t.tableoid
		WHERE t.key = '' AND c.relpersistence <> 'u';
	IF FOUND THEN
		RAISE EXCEPTION '% is a logged table, and has to be UNLOGGED', altered USING ERRCODE = 'object_not_in_prerequisite_state';
	END IF;
	IF NOT in_first THEN
		PERFORM set_config('synchronous_commit', 'local', true);
	ELSIF current_setting('synchronous_commit') = 'off' THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
	INSERT INTO public.locker_locks_ttls AS u (client, ttl, used_until) VALUES (in_client, in_ttl, clock_timestamp() + (in_ttl + 2 * in_again) * interval '1 microsecond')
		ON CONFLICT (client, ttl) DO UPDATE SET used_until = greatest(u.used_until, excluded.used_until);
	SELECT c.oid INTO altered FROM public.locker_locks_ttls AS u JOIN pg_class AS c ON c.oid = u.tableoid
		WHERE u.client = in_client AND u.ttl = in_ttl AND c.relpersistence <> 'p';
	IF FOUND THEN
		RAISE EXCEPTION '% is an unlogged table, and has to be LOGGED', altered USING ERRCODE = 'object_not_in_prerequisite_state';
	END IF;
	IF whole.expires_at < clock_timestamp() THEN
		DELETE FROM public.locker_locks_ttls AS u USING (SELECT o.client, o.ttl FROM public.locker_locks_ttls AS o
			WHERE o.used_until < clock_timestamp() FOR UPDATE SKIP LOCKED) AS old WHERE u.client = old.client AND u.ttl = old.ttl;
		DELETE FROM public.locker_locks_forced AS f USING (SELECT o.owner FROM public.locker_locks_forced AS o
			WHERE o.expires_at < clock_timestamp() FOR UPDATE SKIP LOCKED) AS old WHERE f.owner = old.owner;
	END IF;
	era := whole.era;
	version := whole.version;
	started := whole.started;
END $locker$;

-- settle gives a lock that is free, or that out_owner gives back, to the first of those who wait. Its caller
-- has locked the row, passes it, and gets it as it is then; the type is record, also of the caller's variable, so that
-- the table can be dropped, and plans that sessions have do not name the type of one that was.
-- A waiter of another Client than in_client has 5 s to confirm that it is there.
-- It has sort off, for the first waiter is that of an index: a plan that sorts them all costs more than all the rest.
CREATE OR REPLACE FUNCTION public.locker_locks_settle_v1(in_row record, in_client bytea, out_owner bytea) RETURNS record
LANGUAGE plpgsql SET enable_sort = off AS $locker$
DECLARE
	l public.locker_locks%ROWTYPE := in_row;
	w public.locker_locks_waiters%ROWTYPE;
BEGIN
	IF out_owner IS NULL AND l.owner <> '' AND l.expires_at > clock_timestamp() THEN
		IF NOT l.waited AND EXISTS (SELECT FROM public.locker_locks_waiters AS q WHERE q.key = l.key) THEN
			UPDATE public.locker_locks AS t SET waited = true WHERE t.key = l.key;
		END IF;
	ELSE
		SELECT q.* INTO w FROM public.locker_locks_waiters AS q WHERE q.key = l.key AND q.place > l.served AND EXISTS (SELECT FROM public.locker_locks_clients AS c
			WHERE c.client = substr(q.owner, 1, 8) AND c.alive_until > clock_timestamp()) ORDER BY q.place LIMIT 1;
		IF FOUND THEN
			DELETE FROM public.locker_locks_waiters AS q WHERE q.key = l.key AND q.place > l.served AND q.place <= w.place;
			UPDATE public.locker_locks AS t SET owner = w.owner, metadata = w.metadata, former = coalesce(out_owner, t.former),
				token = greatest(t.token + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
				expires_at = clock_timestamp() + interval '1 microsecond' * CASE WHEN substr(w.owner, 1, 8) = in_client THEN w.ttl ELSE least(w.ttl, 5000000) END,
				waited = EXISTS (SELECT FROM public.locker_locks_waiters AS q WHERE q.key = l.key AND q.place > w.place), served = w.place
				WHERE t.key = l.key RETURNING t.* INTO l;
		ELSE
			DELETE FROM public.locker_locks_waiters AS q WHERE q.key = l.key;
			UPDATE public.locker_locks AS t SET owner = '', former = coalesce(out_owner, t.former), waited = false,
				expires_at = CASE WHEN t.owner = '' THEN t.expires_at ELSE clock_timestamp() END
				WHERE t.key = l.key RETURNING t.* INTO l;
		END IF;
	END IF;
	RETURN l;
END $locker$;

-- tell notifies a waiter that was handed the lock. If the queue of notifications is full, the commit fails.
CREATE OR REPLACE FUNCTION public.locker_locks_tell_v1(in_owner bytea) RETURNS void LANGUAGE plpgsql AS $locker$
BEGIN
	PERFORM set_config('synchronous_commit', 'off', true), -- a notification need not be on disk
		pg_notify('locker_' || encode(substr(in_owner, 1, 8), 'hex'), encode(in_owner, 'hex'));
EXCEPTION WHEN OTHERS THEN -- the waiter asks for itself
END $locker$;

-- take is what ask does with a free lock, and free what release does if nobody waits, in a fraction of the time. They
-- do nothing if there is more to do; take also if the server was started since the era began.
CREATE OR REPLACE FUNCTION public.locker_locks_take_v1(in_key bytea, in_owner bytea, in_metadata bytea, in_ttl bigint, in_era bigint, in_version bigint, in_started bigint)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET lock_timeout = '500ms' AS $locker$
DECLARE
	granted bigint;
BEGIN
	UPDATE public.locker_locks AS t SET token = greatest(t.token + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
		owner = in_owner, metadata = in_metadata, expires_at = clock_timestamp() + in_ttl * interval '1 microsecond'
		WHERE t.key = in_key AND t.era = in_era AND t.version = in_version AND NOT t.waited AND (t.owner = '' OR t.expires_at <= clock_timestamp())
		AND (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint = in_started RETURNING t.token INTO granted;
	RETURN granted;
END $locker$;

CREATE OR REPLACE FUNCTION public.locker_locks_free_v1(in_key bytea, in_owner bytea) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET lock_timeout = '500ms' AS $locker$
BEGIN
	UPDATE public.locker_locks AS t SET owner = '', former = in_owner, expires_at = clock_timestamp()
		WHERE t.key = in_key AND t.owner = in_owner AND t.expires_at > clock_timestamp() AND NOT t.waited;
	RETURN FOUND;
END $locker$;

-- ask grants the lock, or has in_owner wait for it, if in_mark is not 0: for half of that, at least, its Client
-- counts from now. It returns a state:
--   1 granted
--   2 another's; passed is true if this call has handed it over to that one
--   3 in_version is not the one that the row, or a new row, has
--   4 in_era is over
--   5 the name has no row, and may be held: grace
-- revived: waiters of the Client may have lost their places. made: there is a row more.
CREATE OR REPLACE FUNCTION public.locker_locks_ask_v1(in_key bytea, in_name bytea, in_owner bytea, in_metadata bytea, in_ttl bigint,
	in_era bigint, in_version bigint, in_mark bigint, OUT state bigint, OUT token bigint, OUT version bigint,
	OUT remaining bigint, OUT owner bytea, OUT metadata bytea, OUT passed boolean, OUT revived boolean, OUT made boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET lock_timeout = '500ms' AS $locker$
#variable_conflict use_column
DECLARE
	l record;
	running bigint := (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint;
	whole record;
	was bytea;
BEGIN
	FOR round IN 1..1000 LOOP
		SELECT t.era, t.version, t.token, t.expires_at INTO whole FROM public.locker_locks AS t WHERE t.key = '' AND t.served = running;
		IF NOT FOUND THEN
			SELECT w.* INTO whole FROM public.locker_locks_whole_v1() AS w;
		END IF;
		SELECT * INTO l FROM public.locker_locks AS t WHERE t.key = in_key;
		IF NOT FOUND THEN
			version := whole.version;
			remaining := (extract(epoch FROM whole.expires_at - clock_timestamp()) * 1000000)::bigint;
			IF whole.era <> in_era THEN
				state := 4;
				RETURN;
			ELSIF remaining > 0 THEN
				-- Whoever has closed since then has no hold any more.
				remaining := least(remaining, whole.era + coalesce((SELECT max(u.ttl) FROM public.locker_locks_ttls AS u), 0)
					- (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
				IF remaining > 0 THEN
					state := 5;
					RETURN;
				END IF;
				UPDATE public.locker_locks AS t SET expires_at = clock_timestamp() WHERE t.key = '' AND t.era = in_era;
				CONTINUE;
			ELSIF whole.version <> in_version THEN
				state := 3;
				RETURN;
			END IF;
			INSERT INTO public.locker_locks (key, name, era, version, token, owner, metadata, expires_at, former, waited, served)
				VALUES (in_key, in_name, whole.era, whole.version, whole.token, '', '', clock_timestamp(), '',
				EXISTS (SELECT FROM public.locker_locks_waiters AS w WHERE w.key = in_key), 0) ON CONFLICT DO NOTHING;
			made := FOUND;
			CONTINUE;
		ELSIF l.era <> whole.era THEN
			PERFORM public.locker_locks_adopt_v1(in_key, whole.era);
			CONTINUE;
		END IF;
		IF NOT l.waited AND l.version = in_version AND l.era = in_era AND (l.owner = '' OR l.expires_at <= clock_timestamp()) THEN
			UPDATE public.locker_locks AS t SET token = greatest(t.token + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
				owner = in_owner, metadata = in_metadata, expires_at = clock_timestamp() + in_ttl * interval '1 microsecond'
				WHERE t.key = in_key AND t.version = in_version AND t.era = in_era AND NOT t.waited
				AND (t.owner = '' OR t.expires_at <= clock_timestamp()) RETURNING t.token, t.version INTO token, version;
			IF FOUND THEN
				state := 1;
				RETURN;
			END IF;
			CONTINUE;
		END IF;
		version := l.version;
		owner := l.owner;
		metadata := l.metadata;
		remaining := greatest(0, (extract(epoch FROM l.expires_at - clock_timestamp()) * 1000000)::bigint);
		IF in_mark = 0 AND l.owner <> in_owner THEN
			IF l.era <> in_era THEN
				state := 4;
				RETURN;
			ELSIF l.version <> in_version THEN
				state := 3;
				RETURN;
			ELSIF l.owner <> '' AND remaining > 0 THEN
				state := 2;
				RETURN;
			END IF; -- or it is free, and somebody waits, who may be dead
		END IF;

		SELECT * INTO l FROM public.locker_locks AS t WHERE t.key = in_key FOR UPDATE;
		CONTINUE WHEN NOT FOUND;
		IF current_setting('transaction_isolation') <> 'read committed' THEN
			UPDATE public.locker_locks AS t SET version = t.version WHERE t.key = in_key;
		END IF;
		IF l.owner = in_owner AND l.expires_at > clock_timestamp() THEN -- handed over, or asked twice
			UPDATE public.locker_locks AS t SET expires_at = clock_timestamp() + in_ttl * interval '1 microsecond' WHERE t.key = in_key;
			state := 1;
			token := l.token;
			version := l.version;
			RETURN;
		END IF;
		IF l.era <> in_era OR l.version <> in_version THEN -- as one condition it would be planned at each call
			IF NOT EXISTS (SELECT FROM public.locker_locks_waiters AS w WHERE w.owner = in_owner) THEN
				state := CASE WHEN l.era <> in_era THEN 4 ELSE 3 END;
				version := l.version;
				RETURN;
			END IF;
		END IF;
		IF in_mark > 0 THEN
			IF NOT EXISTS (SELECT FROM public.locker_locks_clients AS c WHERE c.client = substr(in_owner, 1, 8)
				AND c.alive_until > clock_timestamp() + in_mark / 2 * interval '1 microsecond') THEN
				revived := NOT EXISTS (SELECT FROM public.locker_locks_clients AS c WHERE c.client = substr(in_owner, 1, 8) AND c.alive_until > clock_timestamp());
				INSERT INTO public.locker_locks_clients AS c (client, alive_until)
					VALUES (substr(in_owner, 1, 8), clock_timestamp() + in_mark * interval '1 microsecond')
					ON CONFLICT (client) DO UPDATE SET alive_until = greatest(c.alive_until, excluded.alive_until);
			END IF;
			INSERT INTO public.locker_locks_waiters AS q (owner, key, place, ttl, metadata) SELECT in_owner, in_key, 1 +
				coalesce((SELECT max(w.place) FROM public.locker_locks_waiters AS w WHERE w.key = in_key AND w.place > l.served), l.served), in_ttl, in_metadata
				ON CONFLICT (owner) DO NOTHING;
		END IF;
		was := l.owner;
		state := 2;
		IF l.owner <> '' AND l.expires_at > clock_timestamp() THEN
			IF NOT l.waited AND in_mark > 0 THEN
				UPDATE public.locker_locks AS t SET waited = true WHERE t.key = in_key;
			END IF;
		ELSE
			l := public.locker_locks_settle_v1(l, substr(in_owner, 1, 8), NULL);
			CONTINUE WHEN l.owner = ''; -- nobody waits
			passed := l.owner <> was;
			state := CASE WHEN l.owner = in_owner THEN 1 ELSE 2 END;
		END IF;
		token := l.token;
		version := l.version;
		owner := l.owner;
		metadata := l.metadata;
		remaining := greatest(0, (extract(epoch FROM l.expires_at - clock_timestamp()) * 1000000)::bigint);
		RETURN;
	END LOOP;
	RAISE EXCEPTION 'the row of the lock changes all the time, or what was written cannot be read: is there row level security?'
		USING ERRCODE = 'object_not_in_prerequisite_state';
END $locker$;

-- release ends the hold of in_owner, or its wait, and hands the lock over to the first of those who wait: then
-- next is that one, and is notified if it is another Client's and in_tell is true. If the queue of notifications is
-- full, the commit fails. It returns whether in_owner held the lock, or has released it last; NULL if the name has
-- no row, or one whose owner is a byte 0. If a take was not answered, in_version is that with which it was sent, else -1: a request that
-- arrives later finds that the version has moved on. A take may be sent with a higher version than the row has.
CREATE OR REPLACE FUNCTION public.locker_locks_release_v1(in_key bytea, in_owner bytea, in_waits boolean, in_era bigint, in_version bigint, in_name bytea, in_tell boolean,
	OUT ours boolean, OUT version bigint, OUT next bytea, OUT token bigint, OUT era bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET lock_timeout = '500ms' AS $locker$
#variable_conflict use_column
DECLARE
	l record;
	running bigint := (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint;
	whole record;
	was bytea;
BEGIN
	FOR round IN 1..1000 LOOP
		IF round = 1000 THEN
			RAISE EXCEPTION 'the row of the lock changes all the time, or what was written cannot be read: is there row level security?'
				USING ERRCODE = 'object_not_in_prerequisite_state';
		END IF;
		SELECT t.era INTO whole FROM public.locker_locks AS t WHERE t.key = '' AND t.served = running;
		IF NOT FOUND THEN
			SELECT w.* INTO whole FROM public.locker_locks_whole_v1() AS w;
		END IF;
		SELECT * INTO l FROM public.locker_locks AS t WHERE t.key = in_key FOR UPDATE;
		IF FOUND THEN
			EXIT WHEN l.era = whole.era;
			PERFORM public.locker_locks_adopt_v1(in_key, whole.era);
			CONTINUE;
		ELSIF in_version < 0 THEN
			RETURN;
		END IF;
		-- A row with another version. Nobody is granted it before the grace is over, and who held the name reclaims it.
		INSERT INTO public.locker_locks (key, name, era, version, token, owner, metadata, expires_at, former, waited, served)
			SELECT in_key, in_name, t.era, t.version + 1, t.token, decode('00', 'hex'), '', t.expires_at, '', false, 0
			FROM public.locker_locks AS t WHERE t.key = '' AND t.era = in_era ON CONFLICT DO NOTHING;
		IF FOUND OR NOT EXISTS (SELECT FROM public.locker_locks AS t WHERE t.key = in_key) THEN
			RETURN;
		END IF;
	END LOOP;
	IF in_waits THEN
		DELETE FROM public.locker_locks_waiters AS w WHERE w.owner = in_owner;
	END IF;
	version := l.version;
	era := l.era;
	IF l.version <= in_version AND l.era = in_era OR current_setting('transaction_isolation') <> 'read committed' THEN
		UPDATE public.locker_locks AS t SET version = CASE WHEN t.era = in_era THEN greatest(t.version, in_version + 1) ELSE t.version END
			WHERE t.key = in_key RETURNING t.version INTO version;
	END IF;
	was := l.owner;
	IF l.owner = in_owner AND l.expires_at > clock_timestamp() THEN
		ours := true;
		l := public.locker_locks_settle_v1(l, substr(in_owner, 1, 8), in_owner);
	ELSE
		ours := l.former = in_owner;
		IF l.waited OR l.owner = in_owner THEN
			l := public.locker_locks_settle_v1(l, substr(in_owner, 1, 8), NULL);
		END IF;
		IF was = decode('00', 'hex') THEN
			ours := NULL;
		END IF;
	END IF;
	IF l.owner <> was AND l.owner <> '' THEN
		next := l.owner;
		token := l.token;
		IF in_tell AND length(next) > 8 AND substr(next, 1, 8) <> substr(in_owner, 1, 8) THEN
			PERFORM public.locker_locks_tell_v1(next);
		END IF;
	END IF;
END $locker$;

-- turn is what release and ask do, one after the other, if in_former holds the lock, and in_owner is to wait: it hands the
-- lock over, in a fraction of the time. It does nothing if there is more to do. What it returns is as of ask.
CREATE OR REPLACE FUNCTION public.locker_locks_turn_v1(in_key bytea, in_former bytea, in_owner bytea, in_metadata bytea, in_ttl bigint,
	in_era bigint, in_version bigint, in_started bigint, in_mark bigint, OUT state bigint,
	OUT token bigint, OUT version bigint, OUT remaining bigint, OUT owner bytea, OUT metadata bytea)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_sort = off SET lock_timeout = '500ms' AS $locker$
#variable_conflict use_column
DECLARE
	last bigint;
	w public.locker_locks_waiters%ROWTYPE;
BEGIN
	SELECT t.served INTO last FROM public.locker_locks AS t WHERE t.key = in_key AND t.owner = in_former AND t.expires_at > clock_timestamp()
		AND t.era = in_era AND t.version = in_version AND (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint = in_started
		AND current_setting('transaction_isolation') = 'read committed'
		AND EXISTS (SELECT FROM public.locker_locks_clients AS c WHERE c.client = substr(in_owner, 1, 8)
			AND c.alive_until > clock_timestamp() + in_mark / 2 * interval '1 microsecond') FOR UPDATE OF t;
	IF NOT FOUND THEN
		RETURN;
	END IF;
	INSERT INTO public.locker_locks_waiters AS q (owner, key, place, ttl, metadata) SELECT in_owner, in_key, 1 +
		coalesce((SELECT max(w.place) FROM public.locker_locks_waiters AS w WHERE w.key = in_key AND w.place > last), last), in_ttl, in_metadata
		ON CONFLICT (owner) DO NOTHING;
	SELECT q.* INTO w FROM public.locker_locks_waiters AS q WHERE q.key = in_key AND q.place > last AND EXISTS (SELECT FROM public.locker_locks_clients AS c
		WHERE c.client = substr(q.owner, 1, 8) AND c.alive_until > clock_timestamp()) ORDER BY q.place LIMIT 1;
	DELETE FROM public.locker_locks_waiters AS q WHERE q.key = in_key AND q.place > last AND q.place <= w.place;
	UPDATE public.locker_locks AS t SET owner = w.owner, metadata = w.metadata, former = in_former,
		token = greatest(t.token + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
		expires_at = clock_timestamp() + interval '1 microsecond' * CASE WHEN substr(w.owner, 1, 8) = substr(in_owner, 1, 8) THEN w.ttl ELSE least(w.ttl, 5000000) END,
		waited = EXISTS (SELECT FROM public.locker_locks_waiters AS q WHERE q.key = in_key AND q.place > w.place), served = w.place
		WHERE t.key = in_key RETURNING CASE WHEN t.owner = in_owner THEN 1 ELSE 2 END, t.token, t.version, w.ttl, t.owner, t.metadata
		INTO state, token, version, remaining, owner, metadata;
	IF length(w.owner) > 8 AND substr(w.owner, 1, 8) <> substr(in_owner, 1, 8) THEN
		PERFORM public.locker_locks_tell_v1(w.owner);
	END IF;
END $locker$;

-- force ends the hold with this token, unless that is 0, and of this owner, unless that is empty. It is on disk
-- before anybody else is granted the lock. By hand, which tells the first waiter within two seconds:
--   SELECT ended FROM public.locker_locks_force_v1(sha256('locker:orders/42'), '', 0, '');
CREATE OR REPLACE FUNCTION public.locker_locks_force_v1(in_key bytea, in_owner bytea, in_token bigint, in_client bytea,
	OUT ended boolean, OUT next bytea, OUT token bigint, OUT era bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET lock_timeout = '500ms' AS $locker$
#variable_conflict use_column
DECLARE
	l record;
BEGIN
	UPDATE public.locker_locks AS t SET version = t.version + 1 WHERE t.key = in_key AND t.key <> '' AND t.owner NOT IN ('', decode('00', 'hex'))
		AND t.expires_at > clock_timestamp() AND (in_token = 0 OR t.token = in_token) AND (in_owner = '' OR t.owner = in_owner)
		RETURNING t.* INTO l;
	ended := FOUND;
	era := l.era;
	IF ended THEN
		IF current_setting('synchronous_commit') = 'off' THEN
			PERFORM set_config('synchronous_commit', 'on', true);
		END IF;
		INSERT INTO public.locker_locks_forced (owner, expires_at) VALUES (l.owner, l.expires_at) ON CONFLICT DO NOTHING;
		l := public.locker_locks_settle_v1(l, in_client, '');
		IF l.owner <> '' THEN
			next := l.owner;
			token := l.token;
		END IF;
	END IF;
END $locker$;

-- beat says that a Client lives. quiet: those of in_keys that somebody holds for longer than half of in_mark, and that
-- others wait for. handed: the owners of this Client that hold one of in_keys; a waiter among them was handed the lock,
-- and the notification may be lost. missed: the Client was taken for dead, and its waiters may have lost their places.
CREATE OR REPLACE FUNCTION public.locker_locks_beat_v1(in_client bytea, in_keys bytea[], in_mark bigint,
	OUT missed boolean, OUT quiet bytea[], OUT handed bytea[])
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $locker$
DECLARE
	mark interval := in_mark * interval '1 microsecond';
BEGIN
	-- A beat soon after another writes nothing. If alive_until is too far ahead, the clock was set back.
	UPDATE public.locker_locks_clients AS c SET alive_until = clock_timestamp() + mark WHERE c.client = in_client AND c.alive_until > clock_timestamp()
		AND c.alive_until NOT BETWEEN clock_timestamp() + mark * 0.8 AND clock_timestamp() + mark;
	missed := NOT FOUND AND NOT EXISTS (SELECT FROM public.locker_locks_clients AS c WHERE c.client = in_client AND c.alive_until > clock_timestamp());
	IF missed THEN
		INSERT INTO public.locker_locks_clients AS c (client, alive_until) VALUES (in_client, clock_timestamp() + mark)
			ON CONFLICT (client) DO UPDATE SET alive_until = excluded.alive_until;
	END IF;
	SELECT coalesce(array_agg(t.key) FILTER (WHERE t.waited AND t.expires_at > clock_timestamp() + mark / 2), '{}'),
		coalesce(array_agg(t.owner) FILTER (WHERE substr(t.owner, 1, 8) = in_client), '{}') INTO quiet, handed
		FROM public.locker_locks AS t WHERE t.key = ANY (in_keys) AND t.owner <> '' AND t.expires_at > clock_timestamp();
END $locker$;

-- extend leaves out a row that another transaction has locked, because the others must not wait for it. It returns
-- the owners that it has extended, and those that it has left out and that still held when it began.
CREATE OR REPLACE FUNCTION public.locker_locks_extend_v1(in_keys bytea[], in_owners bytea[], in_ttl bigint)
RETURNS TABLE (owner bytea, extended boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $locker$
#variable_conflict use_column
BEGIN
	RETURN QUERY WITH ours AS (SELECT * FROM unnest(in_keys, in_owners) AS ours (key, owner)),
		unlocked AS (SELECT key, owner FROM public.locker_locks AS lock JOIN ours USING (key, owner) FOR UPDATE OF lock SKIP LOCKED),
		extended AS (UPDATE public.locker_locks AS lock SET expires_at = clock_timestamp() + in_ttl * interval '1 microsecond'
			FROM unlocked WHERE lock.key = unlocked.key AND lock.owner = unlocked.owner
			AND expires_at > clock_timestamp() RETURNING lock.key, lock.owner)
		SELECT owner, true FROM extended
		UNION ALL
		SELECT owner, false FROM public.locker_locks JOIN ours USING (key, owner)
			WHERE expires_at > statement_timestamp() AND key NOT IN (SELECT key FROM unlocked);
END $locker$;

-- sweep looks at in_rows rows from a key on, and deletes those that nobody has held or waited for during
-- in_idle. New rows go on from their versions and tokens. It returns the last key that it looked at, or ''
-- at the end of the table.
CREATE OR REPLACE FUNCTION public.locker_locks_sweep_v1(in_from bytea, in_rows bigint, in_idle bigint, OUT last bytea, OUT gone bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $locker$
DECLARE
	idle timestamptz := clock_timestamp() - in_idle * interval '1 microsecond';
	versions bigint;
	tokens bigint;
BEGIN
	gone := 0;
	SELECT t.key INTO last FROM public.locker_locks AS t WHERE t.key > in_from ORDER BY t.key OFFSET in_rows - 1 LIMIT 1;
	last := coalesce(last, '');
	IF NOT EXISTS (SELECT FROM public.locker_locks AS t WHERE t.key = '' AND t.expires_at < clock_timestamp()) THEN
		RETURN; -- in the grace every row counts
	END IF;
	-- It waits for nobody's lock of a row: others may wait for its own.
	DELETE FROM public.locker_locks_clients AS c USING (SELECT o.client FROM public.locker_locks_clients AS o
		WHERE o.alive_until < idle FOR UPDATE SKIP LOCKED) AS old WHERE c.client = old.client;
	DELETE FROM public.locker_locks_waiters AS w USING (SELECT o.owner FROM public.locker_locks_waiters AS o
		WHERE o.key > in_from AND (last = '' OR o.key <= last)
		AND NOT EXISTS (SELECT FROM public.locker_locks_clients AS c WHERE c.client = substr(o.owner, 1, 8))
		FOR UPDATE OF o SKIP LOCKED) AS old WHERE w.owner = old.owner;
	WITH old AS (SELECT t.key FROM public.locker_locks AS t WHERE t.key > in_from AND (last = '' OR t.key <= last) AND t.expires_at < idle
			AND NOT EXISTS (SELECT FROM public.locker_locks_waiters AS w WHERE w.key = t.key) FOR UPDATE SKIP LOCKED),
		deleted AS (DELETE FROM public.locker_locks AS t USING old WHERE t.key = old.key RETURNING t.version, t.token)
		SELECT count(*), max(d.version), max(d.token) INTO gone, versions, tokens FROM deleted AS d;
	IF gone > 0 THEN
		UPDATE public.locker_locks AS t SET version = greatest(t.version, versions) + 1, token = greatest(t.token, tokens) WHERE t.key = '';
	END IF;
END $locker$;
