CREATE TABLE api_token (
	id VARCHAR(32) COLLATE "C" NOT NULL,
	campaign VARCHAR(72) COLLATE "C",
	scope VARCHAR(8) COLLATE "C" NOT NULL,
	token_hash BYTEA NOT NULL,
	note TEXT,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	revoked_at TIMESTAMP WITH TIME ZONE,
	CONSTRAINT pk_api_token PRIMARY KEY (id),
	CONSTRAINT uq_api_token_hash UNIQUE (token_hash),
	CONSTRAINT ck_api_token_scope CHECK (scope IN ('read', 'write', 'admin'))
)
-- next statement
CREATE TABLE campaign (
	name VARCHAR(72) COLLATE "C" NOT NULL,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT pk_campaign PRIMARY KEY (name),
	CONSTRAINT ck_campaign_name CHECK (length(name) BETWEEN 1 AND 72)
)
-- next statement
CREATE TABLE judging_profile (
	digest VARCHAR(64) COLLATE "C" NOT NULL,
	document TEXT NOT NULL,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT pk_judging_profile PRIMARY KEY (digest)
)
-- next statement
CREATE TABLE service_state (
	id SERIAL NOT NULL,
	judging_paused BOOLEAN DEFAULT false NOT NULL,
	paused_at TIMESTAMP WITH TIME ZONE,
	moved_to TEXT,
	moved_at TIMESTAMP WITH TIME ZONE,
	clock_offset_ms BIGINT DEFAULT 0 NOT NULL,
	CONSTRAINT pk_service_state PRIMARY KEY (id),
	CONSTRAINT ck_service_state_single CHECK (id = 1)
)
-- next statement
CREATE TABLE cohort_group (
	campaign VARCHAR(72) COLLATE "C" NOT NULL,
	kind VARCHAR(8) COLLATE "C" NOT NULL,
	group_id VARCHAR(256) COLLATE "C" NOT NULL,
	fingerprint BYTEA NOT NULL,
	newest_attempt INTEGER NOT NULL,
	task_index INTEGER,
	prompt_id VARCHAR(256) COLLATE "C",
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	principle TEXT,
	conversation TEXT,
	CONSTRAINT pk_cohort_group PRIMARY KEY (campaign, kind, group_id),
	CONSTRAINT fk_cohort_group_campaign FOREIGN KEY(campaign) REFERENCES campaign (name),
	CONSTRAINT ck_cohort_group_kind CHECK (kind IN ('explicit', 'legacy')),
	CONSTRAINT ck_cohort_group_group_id CHECK (length(group_id) BETWEEN 1 AND 256),
	CONSTRAINT ck_cohort_group_newest_attempt CHECK (newest_attempt BETWEEN 0 AND 2147483647),
	CONSTRAINT ck_cohort_group_legacy_parts CHECK (kind = 'legacy' OR (task_index IS NULL AND prompt_id IS NULL))
)
-- next statement
CREATE TABLE cohort (
	id UUID NOT NULL,
	campaign VARCHAR(72) COLLATE "C" NOT NULL,
	kind VARCHAR(8) COLLATE "C" NOT NULL,
	group_id VARCHAR(256) COLLATE "C" NOT NULL,
	attempt INTEGER NOT NULL,
	incarnation INTEGER NOT NULL,
	retired BOOLEAN DEFAULT false NOT NULL,
	size INTEGER NOT NULL,
	status VARCHAR(10) COLLATE "C" NOT NULL,
	failure_kind VARCHAR(24) COLLATE "C",
	failure_reason TEXT,
	fence BIGINT DEFAULT 0 NOT NULL,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	ready_at TIMESTAMP WITH TIME ZONE,
	settled_at TIMESTAMP WITH TIME ZONE,
	collection_deadline_at TIMESTAMP WITH TIME ZONE NOT NULL,
	evaluation_deadline_at TIMESTAMP WITH TIME ZONE,
	judge VARCHAR(128) COLLATE "C" NOT NULL,
	profile_digest VARCHAR(64) COLLATE "C" NOT NULL,
	judges_early BOOLEAN DEFAULT false NOT NULL,
	claimed_by BIGINT,
	lease_expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
	idle_claims INTEGER DEFAULT 0 NOT NULL,
	rejudge_of UUID,
	answered_from UUID,
	results_dropped_at TIMESTAMP WITH TIME ZONE,
	payload_dropped_at TIMESTAMP WITH TIME ZONE,
	CONSTRAINT pk_cohort PRIMARY KEY (id),
	CONSTRAINT uq_cohort_identity UNIQUE (campaign, kind, group_id, attempt, incarnation),
	CONSTRAINT fk_cohort_cohort_group FOREIGN KEY(campaign, kind, group_id) REFERENCES cohort_group (campaign, kind, group_id),
	CONSTRAINT fk_cohort_judging_profile FOREIGN KEY(profile_digest) REFERENCES judging_profile (digest),
	CONSTRAINT fk_cohort_rejudge_of FOREIGN KEY(rejudge_of) REFERENCES cohort (id),
	CONSTRAINT fk_cohort_answered_from FOREIGN KEY(answered_from) REFERENCES cohort (id),
	CONSTRAINT ck_cohort_status CHECK (status IN ('collecting', 'ready', 'judging', 'completed', 'failed')),
	CONSTRAINT ck_cohort_failure_kind CHECK (failure_kind IS NULL OR failure_kind IN ('collection_timeout', 'judge_failed', 'evaluation_timeout', 'superseded', 'cancelled', 'internal')),
	CONSTRAINT ck_cohort_failed_has_kind CHECK ((status = 'failed') = (failure_kind IS NOT NULL)),
	CONSTRAINT ck_cohort_settled_at CHECK ((status IN ('completed', 'failed')) = (settled_at IS NOT NULL)),
	CONSTRAINT ck_cohort_ready_at CHECK (status NOT IN ('ready', 'judging', 'completed') OR (ready_at IS NOT NULL AND evaluation_deadline_at IS NOT NULL)),
	CONSTRAINT ck_cohort_failure_reason CHECK (length(failure_reason) <= 2000),
	CONSTRAINT ck_cohort_dropped_when_settled CHECK (settled_at IS NOT NULL OR (results_dropped_at IS NULL AND payload_dropped_at IS NULL)),
	CONSTRAINT ck_cohort_attempt CHECK (attempt BETWEEN 0 AND 2147483647),
	CONSTRAINT ck_cohort_incarnation CHECK (incarnation >= 0),
	CONSTRAINT ck_cohort_size CHECK (size >= 2),
	CONSTRAINT ck_cohort_counters CHECK (fence >= 0 AND idle_claims >= 0)
)
-- next statement
CREATE TABLE cohort_event (
	cohort_id UUID NOT NULL,
	fence BIGINT NOT NULL,
	status VARCHAR(10) COLLATE "C" NOT NULL,
	at TIMESTAMP WITH TIME ZONE NOT NULL,
	detail TEXT,
	CONSTRAINT pk_cohort_event PRIMARY KEY (cohort_id, fence, status),
	CONSTRAINT fk_cohort_event_cohort FOREIGN KEY(cohort_id) REFERENCES cohort (id),
	CONSTRAINT ck_cohort_event_status CHECK (status IN ('collecting', 'ready', 'judging', 'completed', 'failed'))
)
-- next statement
CREATE TABLE comparison (
	cohort_id UUID NOT NULL,
	position INTEGER NOT NULL,
	first INTEGER NOT NULL,
	second INTEGER NOT NULL,
	judge_index INTEGER NOT NULL,
	status VARCHAR(8) COLLATE "C" NOT NULL,
	score_1 FLOAT(53),
	score_2 FLOAT(53),
	ranking FLOAT(53),
	defaulted BOOLEAN DEFAULT false NOT NULL,
	ambiguous BOOLEAN DEFAULT false NOT NULL,
	tries INTEGER DEFAULT 0 NOT NULL,
	judge_model TEXT,
	prompt_tokens BIGINT,
	completion_tokens BIGINT,
	latency_ms FLOAT(53),
	ended_at TIMESTAMP WITH TIME ZONE,
	text TEXT,
	CONSTRAINT pk_comparison PRIMARY KEY (cohort_id, first, second, judge_index),
	CONSTRAINT fk_comparison_cohort FOREIGN KEY(cohort_id) REFERENCES cohort (id),
	CONSTRAINT ck_comparison_status CHECK (status IN ('planned', 'done', 'failed', 'unused')),
	CONSTRAINT ck_comparison_slots CHECK (first <> second AND first >= 0 AND second >= 0),
	CONSTRAINT ck_comparison_counters CHECK (judge_index >= 0 AND position >= 0 AND tries >= 0),
	CONSTRAINT ck_comparison_done_has_verdict CHECK (status <> 'done' OR (score_1 IS NOT NULL AND score_2 IS NOT NULL AND ranking IS NOT NULL)),
	CONSTRAINT ck_comparison_score_1 CHECK (score_1 BETWEEN 1 AND 5),
	CONSTRAINT ck_comparison_score_2 CHECK (score_2 BETWEEN 1 AND 5),
	CONSTRAINT ck_comparison_ranking CHECK (ranking BETWEEN 1 AND 6)
)
-- next statement
CREATE TABLE member_slot (
	cohort_id UUID NOT NULL,
	rollout_index INTEGER NOT NULL,
	response_digest BYTEA NOT NULL,
	arrived_at TIMESTAMP WITH TIME ZONE NOT NULL,
	text_escaped BOOLEAN DEFAULT false NOT NULL,
	answer_cut BOOLEAN DEFAULT false NOT NULL,
	metadata TEXT,
	answer TEXT,
	reasoning TEXT,
	CONSTRAINT pk_member_slot PRIMARY KEY (cohort_id, rollout_index),
	CONSTRAINT fk_member_slot_cohort FOREIGN KEY(cohort_id) REFERENCES cohort (id),
	CONSTRAINT ck_member_slot_rollout_index CHECK (rollout_index BETWEEN 0 AND 2147483647)
)
-- next statement
CREATE TABLE judge_call (
	cohort_id UUID NOT NULL,
	first INTEGER NOT NULL,
	second INTEGER NOT NULL,
	judge_index INTEGER NOT NULL,
	try_no INTEGER NOT NULL,
	fence BIGINT NOT NULL,
	outcome VARCHAR(24) COLLATE "C" NOT NULL,
	budget VARCHAR(12) COLLATE "C" NOT NULL,
	answered BOOLEAN DEFAULT false NOT NULL,
	exhausted BOOLEAN DEFAULT false NOT NULL,
	early BOOLEAN DEFAULT false NOT NULL,
	http_status INTEGER,
	endpoint TEXT,
	error_type TEXT,
	error_code TEXT,
	message TEXT,
	judge_model TEXT,
	prompt_tokens BIGINT,
	completion_tokens BIGINT,
	latency_ms FLOAT(53) NOT NULL,
	ended_at TIMESTAMP WITH TIME ZONE NOT NULL,
	text TEXT,
	reasoning TEXT,
	CONSTRAINT pk_judge_call PRIMARY KEY (cohort_id, first, second, judge_index, try_no),
	CONSTRAINT fk_judge_call_comparison FOREIGN KEY(cohort_id, first, second, judge_index) REFERENCES comparison (cohort_id, first, second, judge_index),
	CONSTRAINT ck_judge_call_budget CHECK (budget IN ('answers', 'transport', 'none')),
	CONSTRAINT ck_judge_call_counters CHECK (try_no >= 1 AND latency_ms >= 0)
)
-- next statement
CREATE TABLE member_body (
	cohort_id UUID NOT NULL,
	rollout_index INTEGER NOT NULL,
	codec INTEGER NOT NULL,
	wire VARCHAR(8) COLLATE "C" NOT NULL,
	body BYTEA NOT NULL,
	CONSTRAINT pk_member_body PRIMARY KEY (cohort_id, rollout_index),
	CONSTRAINT fk_member_body_member_slot FOREIGN KEY(cohort_id, rollout_index) REFERENCES member_slot (cohort_id, rollout_index),
	CONSTRAINT ck_member_body_codec CHECK (codec IN (0, 1))
)
-- next statement
CREATE TABLE member_reward (
	cohort_id UUID NOT NULL,
	rollout_index INTEGER NOT NULL,
	reward FLOAT(53) NOT NULL,
	base_reward FLOAT(53) NOT NULL,
	adjustment FLOAT(53) NOT NULL,
	mask_sample BOOLEAN DEFAULT false NOT NULL,
	defaulted_comparisons INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT pk_member_reward PRIMARY KEY (cohort_id, rollout_index),
	CONSTRAINT fk_member_reward_member_slot FOREIGN KEY(cohort_id, rollout_index) REFERENCES member_slot (cohort_id, rollout_index),
	CONSTRAINT ck_member_reward_reward CHECK (reward BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308),
	CONSTRAINT ck_member_reward_base CHECK (base_reward BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308),
	CONSTRAINT ck_member_reward_adjustment CHECK (adjustment BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308)
)
-- next statement
CREATE UNIQUE INDEX uq_cohort_live ON cohort (campaign, kind, group_id, attempt) WHERE NOT retired
-- next statement
CREATE INDEX ix_cohort_claim ON cohort (campaign, lease_expires_at, ready_at) WHERE status IN ('ready', 'judging')
-- next statement
CREATE INDEX ix_cohort_claim_early ON cohort (campaign, lease_expires_at) WHERE status = 'collecting' AND judges_early
-- next statement
CREATE INDEX ix_cohort_collecting ON cohort (collection_deadline_at) WHERE status = 'collecting'
-- next statement
CREATE INDEX ix_cohort_evaluating ON cohort (evaluation_deadline_at) WHERE status IN ('ready', 'judging')
-- next statement
CREATE INDEX ix_cohort_settled ON cohort (settled_at) WHERE settled_at IS NOT NULL AND results_dropped_at IS NULL
-- next statement
CREATE INDEX ix_cohort_payload ON cohort (settled_at) WHERE settled_at IS NOT NULL AND payload_dropped_at IS NULL AND results_dropped_at IS NULL
-- next statement
CREATE INDEX ix_cohort_newest ON cohort (campaign, id)
-- next statement
CREATE INDEX ix_cohort_failed ON cohort (campaign, id) WHERE status = 'failed'
-- next statement
CREATE INDEX ix_api_token_live ON api_token (campaign) WHERE revoked_at IS NULL
-- next statement
CREATE FUNCTION cohort_moves_forward() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.status <> OLD.status AND NOT ((OLD.status = 'collecting' AND NEW.status = 'ready') OR (OLD.status = 'collecting' AND NEW.status = 'failed') OR (OLD.status = 'ready' AND NEW.status = 'judging') OR (OLD.status = 'ready' AND NEW.status = 'failed') OR (OLD.status = 'judging' AND NEW.status = 'completed') OR (OLD.status = 'judging' AND NEW.status = 'failed')) THEN
    RAISE EXCEPTION 'a cohort only moves along its life: this change of status is not one of its transitions (L1)' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$
-- next statement
CREATE TRIGGER cohort_moves_forward BEFORE UPDATE OF status ON cohort FOR EACH ROW EXECUTE FUNCTION cohort_moves_forward()
-- next statement
CREATE FUNCTION cohort_identity_is_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT (NEW.id IS NOT DISTINCT FROM OLD.id) OR NOT (NEW.campaign IS NOT DISTINCT FROM OLD.campaign) OR NOT (NEW.kind IS NOT DISTINCT FROM OLD.kind) OR NOT (NEW.group_id IS NOT DISTINCT FROM OLD.group_id) OR NOT (NEW.attempt IS NOT DISTINCT FROM OLD.attempt) OR NOT (NEW.incarnation IS NOT DISTINCT FROM OLD.incarnation) OR NOT (NEW.size IS NOT DISTINCT FROM OLD.size) OR NOT (NEW.profile_digest IS NOT DISTINCT FROM OLD.profile_digest) OR NOT (NEW.judge IS NOT DISTINCT FROM OLD.judge) OR NOT (NEW.judges_early IS NOT DISTINCT FROM OLD.judges_early) OR NOT (NEW.created_at IS NOT DISTINCT FROM OLD.created_at) OR NOT (NEW.collection_deadline_at IS NOT DISTINCT FROM OLD.collection_deadline_at) OR NOT (NEW.rejudge_of IS NOT DISTINCT FROM OLD.rejudge_of) THEN
    RAISE EXCEPTION 'identity, size, profile and collection deadline of a cohort never change' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$
-- next statement
CREATE TRIGGER cohort_identity_is_frozen BEFORE UPDATE OF id, campaign, kind, group_id, attempt, incarnation, size, profile_digest, judge, judges_early, created_at, collection_deadline_at, rejudge_of ON cohort FOR EACH ROW EXECUTE FUNCTION cohort_identity_is_frozen()
-- next statement
CREATE FUNCTION cohort_settled_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.settled_at IS NOT NULL AND (NOT (NEW.failure_kind IS NOT DISTINCT FROM OLD.failure_kind) OR NOT (NEW.failure_reason IS NOT DISTINCT FROM OLD.failure_reason) OR NOT (NEW.settled_at IS NOT DISTINCT FROM OLD.settled_at) OR NOT (NEW.ready_at IS NOT DISTINCT FROM OLD.ready_at) OR NOT (NEW.evaluation_deadline_at IS NOT DISTINCT FROM OLD.evaluation_deadline_at) OR (OLD.results_dropped_at IS NOT NULL AND NEW.results_dropped_at IS NULL)) THEN
    RAISE EXCEPTION 'what a settled cohort says of itself never changes, and what was dropped does not come back (L3)' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$
-- next statement
CREATE TRIGGER cohort_settled_is_final BEFORE UPDATE OF failure_kind, failure_reason, settled_at, ready_at, evaluation_deadline_at, results_dropped_at ON cohort FOR EACH ROW EXECUTE FUNCTION cohort_settled_is_final()
-- next statement
CREATE FUNCTION cohort_fence_only_rises() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.fence < OLD.fence THEN
    RAISE EXCEPTION 'a fence only rises (L5)' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$
-- next statement
CREATE TRIGGER cohort_fence_only_rises BEFORE UPDATE OF fence ON cohort FOR EACH ROW EXECUTE FUNCTION cohort_fence_only_rises()
-- next statement
CREATE FUNCTION cohort_completes_whole() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.status = 'completed' AND OLD.status <> 'completed' AND ( (SELECT count(*) FROM member_reward WHERE member_reward.cohort_id = NEW.id) <> (SELECT count(*) FROM member_slot WHERE member_slot.cohort_id = NEW.id) OR EXISTS (SELECT 1 FROM comparison WHERE comparison.cohort_id = NEW.id AND comparison.status IN ('planned', 'failed'))) THEN
    RAISE EXCEPTION 'a cohort completes with a reward for each member and a verdict for each planned comparison (L3)' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$
-- next statement
CREATE TRIGGER cohort_completes_whole BEFORE UPDATE OF status ON cohort FOR EACH ROW EXECUTE FUNCTION cohort_completes_whole()
-- next statement
CREATE FUNCTION member_joins_collecting_cohort() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM cohort WHERE cohort.id = NEW.cohort_id AND cohort.status = 'collecting' AND NEW.rollout_index < cohort.size) THEN
    RAISE EXCEPTION 'a member joins a collecting cohort, in a slot below its size (L3)' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$
-- next statement
CREATE TRIGGER member_joins_collecting_cohort BEFORE INSERT ON member_slot FOR EACH ROW EXECUTE FUNCTION member_joins_collecting_cohort()
-- next statement
CREATE FUNCTION member_response_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT (NEW.cohort_id IS NOT DISTINCT FROM OLD.cohort_id) OR NOT (NEW.rollout_index IS NOT DISTINCT FROM OLD.rollout_index) OR NOT (NEW.response_digest IS NOT DISTINCT FROM OLD.response_digest) OR NOT (NEW.arrived_at IS NOT DISTINCT FROM OLD.arrived_at) OR ((NOT (NEW.answer IS NOT DISTINCT FROM OLD.answer) OR NOT (NEW.reasoning IS NOT DISTINCT FROM OLD.reasoning)) AND NOT (NEW.answer IS NULL AND NEW.reasoning IS NULL AND EXISTS (SELECT 1 FROM cohort WHERE cohort.id = NEW.cohort_id AND (cohort.payload_dropped_at IS NOT NULL OR cohort.results_dropped_at IS NOT NULL)))) THEN
    RAISE EXCEPTION 'the first accepted response of a slot is authoritative; retention alone drops its texts (R10, R70)' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$
-- next statement
CREATE TRIGGER member_response_is_final BEFORE UPDATE OF cohort_id, rollout_index, response_digest, arrived_at, answer, reasoning ON member_slot FOR EACH ROW EXECUTE FUNCTION member_response_is_final()
-- next statement
CREATE FUNCTION member_outlives_all_but_retention() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM cohort WHERE cohort.id = OLD.cohort_id AND cohort.results_dropped_at IS NOT NULL) THEN
    RAISE EXCEPTION 'a member is only dropped by retention (R10, R70)' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN OLD;
END $$
-- next statement
CREATE TRIGGER member_outlives_all_but_retention BEFORE DELETE ON member_slot FOR EACH ROW EXECUTE FUNCTION member_outlives_all_but_retention()
-- next statement
CREATE FUNCTION body_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TRUE THEN
    RAISE EXCEPTION 'a stored request never changes (R71)' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$
-- next statement
CREATE TRIGGER body_is_final BEFORE UPDATE ON member_body FOR EACH ROW EXECUTE FUNCTION body_is_final()
-- next statement
CREATE FUNCTION body_outlives_all_but_retention() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM cohort WHERE cohort.id = OLD.cohort_id AND (cohort.payload_dropped_at IS NOT NULL OR cohort.results_dropped_at IS NOT NULL)) THEN
    RAISE EXCEPTION 'a stored request is only dropped by retention (R70)' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN OLD;
END $$
-- next statement
CREATE TRIGGER body_outlives_all_but_retention BEFORE DELETE ON member_body FOR EACH ROW EXECUTE FUNCTION body_outlives_all_but_retention()
-- next statement
CREATE FUNCTION reward_enters_with_settlement() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM cohort WHERE cohort.id = NEW.cohort_id AND cohort.status = 'judging') THEN
    RAISE EXCEPTION 'rewards are written in the transaction that completes their cohort (L3)' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$
-- next statement
CREATE TRIGGER reward_enters_with_settlement BEFORE INSERT ON member_reward FOR EACH ROW EXECUTE FUNCTION reward_enters_with_settlement()
-- next statement
CREATE FUNCTION reward_never_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TRUE THEN
    RAISE EXCEPTION 'a settled reward never changes (L3)' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$
-- next statement
CREATE TRIGGER reward_never_changes BEFORE UPDATE ON member_reward FOR EACH ROW EXECUTE FUNCTION reward_never_changes()
-- next statement
CREATE FUNCTION reward_outlives_all_but_retention() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM cohort WHERE cohort.id = OLD.cohort_id AND cohort.results_dropped_at IS NOT NULL) THEN
    RAISE EXCEPTION 'a settled reward is only dropped by retention (L3)' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN OLD;
END $$
-- next statement
CREATE TRIGGER reward_outlives_all_but_retention BEFORE DELETE ON member_reward FOR EACH ROW EXECUTE FUNCTION reward_outlives_all_but_retention()
-- next statement
CREATE FUNCTION comparison_joins_open_cohort() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM cohort WHERE cohort.id = NEW.cohort_id AND cohort.status IN ('completed', 'failed')) THEN
    RAISE EXCEPTION 'a settled cohort is not judged any more (L3)' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$
-- next statement
CREATE TRIGGER comparison_joins_open_cohort BEFORE INSERT ON comparison FOR EACH ROW EXECUTE FUNCTION comparison_joins_open_cohort()
-- next statement
CREATE FUNCTION comparison_verdict_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT (NEW.cohort_id IS NOT DISTINCT FROM OLD.cohort_id) OR NOT (NEW.first IS NOT DISTINCT FROM OLD.first) OR NOT (NEW.second IS NOT DISTINCT FROM OLD.second) OR NOT (NEW.judge_index IS NOT DISTINCT FROM OLD.judge_index) OR (OLD.status = 'done' AND (NEW.status NOT IN ('done', 'unused') OR NOT (NEW.score_1 IS NOT DISTINCT FROM OLD.score_1) OR NOT (NEW.score_2 IS NOT DISTINCT FROM OLD.score_2) OR NOT (NEW.ranking IS NOT DISTINCT FROM OLD.ranking) OR NOT (NEW.defaulted IS NOT DISTINCT FROM OLD.defaulted))) OR (NEW.status <> OLD.status AND EXISTS (SELECT 1 FROM cohort WHERE cohort.id = NEW.cohort_id AND cohort.status IN ('completed', 'failed'))) THEN
    RAISE EXCEPTION 'a verdict is given once, while its cohort is open (R41)' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$
-- next statement
CREATE TRIGGER comparison_verdict_is_final BEFORE UPDATE OF cohort_id, first, second, judge_index, status, score_1, score_2, ranking, defaulted ON comparison FOR EACH ROW EXECUTE FUNCTION comparison_verdict_is_final()
-- next statement
CREATE FUNCTION comparison_outlives_all_but_retention() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM cohort WHERE cohort.id = OLD.cohort_id AND cohort.results_dropped_at IS NOT NULL) THEN
    RAISE EXCEPTION 'a comparison is only dropped by retention (R41, R70)' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN OLD;
END $$
-- next statement
CREATE TRIGGER comparison_outlives_all_but_retention BEFORE DELETE ON comparison FOR EACH ROW EXECUTE FUNCTION comparison_outlives_all_but_retention()
-- next statement
CREATE FUNCTION profile_never_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TRUE THEN
    RAISE EXCEPTION 'a judging profile is frozen with the cohorts that name it' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$
-- next statement
CREATE TRIGGER profile_never_changes BEFORE UPDATE ON judging_profile FOR EACH ROW EXECUTE FUNCTION profile_never_changes()
-- next statement
CREATE FUNCTION group_keeps_its_prompt() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT (NEW.campaign IS NOT DISTINCT FROM OLD.campaign) OR NOT (NEW.kind IS NOT DISTINCT FROM OLD.kind) OR NOT (NEW.group_id IS NOT DISTINCT FROM OLD.group_id) OR NOT (NEW.fingerprint IS NOT DISTINCT FROM OLD.fingerprint) OR NEW.newest_attempt < OLD.newest_attempt THEN
    RAISE EXCEPTION 'a group is bound to its prompt for ever and its newest attempt only rises (R6, R14)' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$
-- next statement
CREATE TRIGGER group_keeps_its_prompt BEFORE UPDATE OF campaign, kind, group_id, fingerprint, newest_attempt ON cohort_group FOR EACH ROW EXECUTE FUNCTION group_keeps_its_prompt()
-- next statement
CREATE VIEW member AS
SELECT s.cohort_id, c.campaign, c.kind, c.group_id, c.attempt, c.incarnation, s.rollout_index,
       s.answer, s.reasoning, s.text_escaped, s.answer_cut, s.response_digest,
       r.reward, r.base_reward, r.adjustment,
       CASE WHEN c.status = 'failed' THEN TRUE ELSE COALESCE(r.mask_sample, FALSE) END AS mask_sample,
       COALESCE(r.defaulted_comparisons, 0) AS defaulted_comparisons, s.metadata, s.arrived_at
  FROM member_slot s
  JOIN cohort c ON c.id = s.cohort_id
  LEFT JOIN member_reward r ON r.cohort_id = s.cohort_id AND r.rollout_index = s.rollout_index
-- next statement
CREATE VIEW cohort_history AS
SELECT e.cohort_id, e.at, 'state' AS what, e.status, e.fence,
       NULL::integer AS rollout_index, NULL::integer AS first, NULL::integer AS second, NULL::integer AS judge_index, e.detail
  FROM cohort_event e
UNION ALL
SELECT s.cohort_id, s.arrived_at, 'arrival', NULL::text, NULL::bigint, s.rollout_index, NULL::integer, NULL::integer, NULL::integer, NULL::text
  FROM member_slot s
UNION ALL
SELECT p.cohort_id, p.ended_at, 'verdict', p.status, NULL::bigint, NULL::integer, p.first, p.second, p.judge_index, NULL::text
  FROM comparison p
 WHERE p.ended_at IS NOT NULL
-- next statement
CREATE VIEW reward_ledger AS
SELECT c.campaign, c.kind, c.group_id, c.attempt, c.incarnation, c.retired, r.cohort_id, r.rollout_index,
       r.reward, r.base_reward, r.adjustment, r.mask_sample, r.defaulted_comparisons,
       (SELECT count(*) FROM comparison p WHERE p.cohort_id = r.cohort_id AND p.status = 'done'
           AND (p.first = r.rollout_index OR p.second = r.rollout_index)) AS verdicts,
       (SELECT min(p.judge_model) FROM comparison p WHERE p.cohort_id = r.cohort_id AND p.status = 'done') AS judge_model,
       c.judge, c.size, c.fence, c.created_at, c.ready_at, c.settled_at, s.arrived_at, s.response_digest,
       g.fingerprint, c.profile_digest, f.document AS profile, c.rejudge_of
  FROM member_reward r
  JOIN cohort c ON c.id = r.cohort_id
  JOIN member_slot s ON s.cohort_id = r.cohort_id AND s.rollout_index = r.rollout_index
  JOIN cohort_group g ON g.campaign = c.campaign AND g.kind = c.kind AND g.group_id = c.group_id
  JOIN judging_profile f ON f.digest = c.profile_digest
-- next statement
CREATE VIEW judge_quality AS
SELECT c.campaign, c.judge, p.judge_model, count(*) AS verdicts,
       sum(CASE WHEN p.defaulted THEN 1 ELSE 0 END) AS defaulted,
       sum(CASE WHEN p.ambiguous THEN 1 ELSE 0 END) AS ambiguous,
       sum(CASE WHEN p.score_1 = p.score_2 THEN 1 ELSE 0 END) AS score_ties,
       sum(CASE WHEN p.ranking < 3.5 THEN 1 ELSE 0 END) AS first_preferred,
       sum(CASE WHEN p.ranking > 3.5 THEN 1 ELSE 0 END) AS second_preferred,
       sum(p.tries) AS tries, avg(p.latency_ms) AS mean_latency_ms,
       sum(p.prompt_tokens) AS prompt_tokens, sum(p.completion_tokens) AS completion_tokens
  FROM comparison p
  JOIN cohort c ON c.id = p.cohort_id
 WHERE p.status = 'done'
 GROUP BY c.campaign, c.judge, p.judge_model
-- next statement
ALTER TABLE member_body ALTER COLUMN body SET STORAGE EXTERNAL
-- next statement
DO $$ BEGIN ALTER TABLE member_slot ALTER COLUMN answer SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN NULL; END $$
-- next statement
DO $$ BEGIN ALTER TABLE member_slot ALTER COLUMN reasoning SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN NULL; END $$
-- next statement
DO $$ BEGIN ALTER TABLE cohort_group ALTER COLUMN conversation SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN NULL; END $$
-- next statement
COMMENT ON TABLE api_token IS 'Access, by the hash of its secret.'
-- next statement
COMMENT ON COLUMN api_token.id IS 'Public name of the token.'
-- next statement
COMMENT ON COLUMN api_token.campaign IS 'The campaign that it is for; null: all of them.'
-- next statement
COMMENT ON COLUMN api_token.scope IS 'read, write or admin; each includes the ones before it.'
-- next statement
COMMENT ON COLUMN api_token.token_hash IS 'SHA-256 of the token; the token itself is nowhere stored.'
-- next statement
COMMENT ON COLUMN api_token.note IS 'Whose it is.'
-- next statement
COMMENT ON COLUMN api_token.created_at IS 'When it was made.'
-- next statement
COMMENT ON COLUMN api_token.revoked_at IS 'When it was revoked; null while it counts.'
-- next statement
COMMENT ON TABLE campaign IS 'One training run or evaluation; comes into being with its first accepted write.'
-- next statement
COMMENT ON COLUMN campaign.name IS 'Namespace of group ids, tokens, settings and reports.'
-- next statement
COMMENT ON COLUMN campaign.created_at IS 'When its first member was accepted.'
-- next statement
COMMENT ON TABLE judging_profile IS 'A judging configuration, frozen with every cohort that names it; rows never change.'
-- next statement
COMMENT ON COLUMN judging_profile.digest IS 'SHA-256 of the document, in hex.'
-- next statement
COMMENT ON COLUMN judging_profile.document IS 'The judging configuration as JSON, keys sorted.'
-- next statement
COMMENT ON COLUMN judging_profile.created_at IS 'When a cohort first used it.'
-- next statement
COMMENT ON TABLE service_state IS 'What all processes on this database share: one row.'
-- next statement
COMMENT ON COLUMN service_state.id IS 'Always 1.'
-- next statement
COMMENT ON COLUMN service_state.judging_paused IS 'No cohort is claimed while it is set.'
-- next statement
COMMENT ON COLUMN service_state.paused_at IS 'Since when.'
-- next statement
COMMENT ON COLUMN service_state.moved_to IS 'Where this database was copied to; it is not served any more.'
-- next statement
COMMENT ON COLUMN service_state.moved_at IS 'Since when.'
-- next statement
COMMENT ON COLUMN service_state.clock_offset_ms IS 'Moved by tests alone; 0 in use.'
-- next statement
COMMENT ON TABLE cohort_group IS 'One occurrence of one prompt within a campaign, bound to that prompt for ever.'
-- next statement
COMMENT ON COLUMN cohort_group.campaign IS 'The group''s campaign.'
-- next statement
COMMENT ON COLUMN cohort_group.kind IS 'explicit: named by the caller; legacy: derived (R8).'
-- next statement
COMMENT ON COLUMN cohort_group.group_id IS 'The caller''s id; for legacy the hex digest of its key.'
-- next statement
COMMENT ON COLUMN cohort_group.fingerprint IS 'Versioned digest of prompt and principle (R6).'
-- next statement
COMMENT ON COLUMN cohort_group.newest_attempt IS 'Highest attempt seen; outlives every retention (R14).'
-- next statement
COMMENT ON COLUMN cohort_group.task_index IS 'Legacy: the task index that the key was made of.'
-- next statement
COMMENT ON COLUMN cohort_group.prompt_id IS 'Legacy: the prompt id that the key was made of.'
-- next statement
COMMENT ON COLUMN cohort_group.created_at IS 'When its first member was accepted.'
-- next statement
COMMENT ON COLUMN cohort_group.principle IS 'The principle that the judge is given, if the caller sent one.'
-- next statement
COMMENT ON COLUMN cohort_group.conversation IS 'The prompt as the judge is given it: JSON list of {role, content}.'
-- next statement
COMMENT ON TABLE cohort IS 'One attempt of one group, and everything that decides what becomes of it.'
-- next statement
COMMENT ON COLUMN cohort.id IS 'UUIDv7; sorts by creation within a process.'
-- next statement
COMMENT ON COLUMN cohort.campaign IS 'The group''s campaign.'
-- next statement
COMMENT ON COLUMN cohort.kind IS 'The group''s kind.'
-- next statement
COMMENT ON COLUMN cohort.group_id IS 'The group''s id.'
-- next statement
COMMENT ON COLUMN cohort.attempt IS 'Try number of the whole group, given by the caller.'
-- next statement
COMMENT ON COLUMN cohort.incarnation IS 'Given by the server when one identity is used again.'
-- next statement
COMMENT ON COLUMN cohort.retired IS 'Another incarnation has taken (or may take) this identity.'
-- next statement
COMMENT ON COLUMN cohort.size IS 'N, fixed by the first member.'
-- next statement
COMMENT ON COLUMN cohort.status IS 'State of its life (SPEC 2).'
-- next statement
COMMENT ON COLUMN cohort.failure_kind IS 'Why it failed; null unless failed.'
-- next statement
COMMENT ON COLUMN cohort.failure_reason IS 'The failure in our words, at most 2,000 characters.'
-- next statement
COMMENT ON COLUMN cohort.fence IS 'Raised by each claim (L5).'
-- next statement
COMMENT ON COLUMN cohort.created_at IS 'When its first member was accepted.'
-- next statement
COMMENT ON COLUMN cohort.ready_at IS 'When it was full (or went on without the missing).'
-- next statement
COMMENT ON COLUMN cohort.settled_at IS 'When it was completed or failed.'
-- next statement
COMMENT ON COLUMN cohort.collection_deadline_at IS 'It must be full by then (R30).'
-- next statement
COMMENT ON COLUMN cohort.evaluation_deadline_at IS 'Every verdict must be in by then (R31).'
-- next statement
COMMENT ON COLUMN cohort.judge IS 'Name of the judge that its profile freezes.'
-- next statement
COMMENT ON COLUMN cohort.profile_digest IS 'Its frozen judging configuration.'
-- next statement
COMMENT ON COLUMN cohort.judges_early IS 'Pairs are judged while siblings are still missing (R36).'
-- next statement
COMMENT ON COLUMN cohort.claimed_by IS 'Token of the process that judges it; never a host name.'
-- next statement
COMMENT ON COLUMN cohort.lease_expires_at IS 'The claim holds until then; long past when free.'
-- next statement
COMMENT ON COLUMN cohort.idle_claims IS 'Claims that ran out idle (L7).'
-- next statement
COMMENT ON COLUMN cohort.rejudge_of IS 'The cohort whose stored answers this one judges again.'
-- next statement
COMMENT ON COLUMN cohort.answered_from IS 'Legacy copies: the completed cohort whose rewards were given (R24).'
-- next statement
COMMENT ON COLUMN cohort.results_dropped_at IS 'When retention dropped rewards and members (R70).'
-- next statement
COMMENT ON COLUMN cohort.payload_dropped_at IS 'When retention dropped texts and bodies (R70).'
-- next statement
COMMENT ON TABLE cohort_event IS 'Changes of state, each entered once under each fence.'
-- next statement
COMMENT ON COLUMN cohort_event.cohort_id IS 'The cohort that changed.'
-- next statement
COMMENT ON COLUMN cohort_event.fence IS 'Its fence after the change.'
-- next statement
COMMENT ON COLUMN cohort_event.status IS 'The state that it entered.'
-- next statement
COMMENT ON COLUMN cohort_event.at IS 'When.'
-- next statement
COMMENT ON COLUMN cohort_event.detail IS 'Failure kind and reason, or what else explains the change.'
-- next statement
COMMENT ON TABLE comparison IS 'One judged pair; planned with the cohort, given its verdict once.'
-- next statement
COMMENT ON COLUMN comparison.cohort_id IS 'The comparison''s cohort.'
-- next statement
COMMENT ON COLUMN comparison.position IS 'Place in the plan; verdicts are added in this order (R50).'
-- next statement
COMMENT ON COLUMN comparison.first IS 'Slot shown to the judge first.'
-- next statement
COMMENT ON COLUMN comparison.second IS 'Slot shown to the judge second.'
-- next statement
COMMENT ON COLUMN comparison.judge_index IS 'Pass of the judge over the pairs.'
-- next statement
COMMENT ON COLUMN comparison.status IS 'planned, done, failed, or unused (R34).'
-- next statement
COMMENT ON COLUMN comparison.score_1 IS '1-5, of the first.'
-- next statement
COMMENT ON COLUMN comparison.score_2 IS '1-5, of the second.'
-- next statement
COMMENT ON COLUMN comparison.ranking IS '1-6; 1: first much better.'
-- next statement
COMMENT ON COLUMN comparison.defaulted IS 'The neutral verdict stands in for an unparseable answer (R37, R46).'
-- next statement
COMMENT ON COLUMN comparison.ambiguous IS 'The judge''s text held several different verdicts (R51).'
-- next statement
COMMENT ON COLUMN comparison.tries IS 'HTTP tries made so far.'
-- next statement
COMMENT ON COLUMN comparison.judge_model IS 'The model that the judge says it is.'
-- next statement
COMMENT ON COLUMN comparison.prompt_tokens IS 'Of the try that gave the verdict.'
-- next statement
COMMENT ON COLUMN comparison.completion_tokens IS 'Of the try that gave the verdict.'
-- next statement
COMMENT ON COLUMN comparison.latency_ms IS 'Of the try that gave the verdict.'
-- next statement
COMMENT ON COLUMN comparison.ended_at IS 'When its verdict or failure was stored.'
-- next statement
COMMENT ON COLUMN comparison.text IS 'What the judge wrote; null once dropped by retention.'
-- next statement
COMMENT ON TABLE member_slot IS 'The first accepted response of a slot; rewards stand apart, so that setting one rewrites no text.'
-- next statement
COMMENT ON COLUMN member_slot.cohort_id IS 'The member''s cohort.'
-- next statement
COMMENT ON COLUMN member_slot.rollout_index IS 'Its slot, 0 ... N-1.'
-- next statement
COMMENT ON COLUMN member_slot.response_digest IS 'Versioned digest of the whole response (R7).'
-- next statement
COMMENT ON COLUMN member_slot.arrived_at IS 'When it was accepted.'
-- next statement
COMMENT ON COLUMN member_slot.text_escaped IS 'NUL or lone surrogates stand escaped in the texts (R71).'
-- next statement
COMMENT ON COLUMN member_slot.answer_cut IS 'The judge is shown a shortened answer (R38).'
-- next statement
COMMENT ON COLUMN member_slot.metadata IS 'The caller''s metadata as JSON, if any was sent.'
-- next statement
COMMENT ON COLUMN member_slot.answer IS 'What the judge compares; null once dropped by retention.'
-- next statement
COMMENT ON COLUMN member_slot.reasoning IS 'The rollout''s reasoning; null once dropped by retention.'
-- next statement
COMMENT ON TABLE judge_call IS 'Every HTTP try that ended, written with its outcome; one cut off by a crash leaves none (R41).'
-- next statement
COMMENT ON COLUMN judge_call.cohort_id IS 'The comparison''s cohort.'
-- next statement
COMMENT ON COLUMN judge_call.first IS 'The comparison''s first slot.'
-- next statement
COMMENT ON COLUMN judge_call.second IS 'The comparison''s second slot.'
-- next statement
COMMENT ON COLUMN judge_call.judge_index IS 'The comparison''s pass.'
-- next statement
COMMENT ON COLUMN judge_call.try_no IS '1, 2, 3 ... over all restarts.'
-- next statement
COMMENT ON COLUMN judge_call.fence IS 'The claim under which it ended.'
-- next statement
COMMENT ON COLUMN judge_call.outcome IS 'ok, or what kind of failure.'
-- next statement
COMMENT ON COLUMN judge_call.budget IS 'The budget that it cost: answers, transport or none (R45).'
-- next statement
COMMENT ON COLUMN judge_call.answered IS 'It was a completed answer with text (R46).'
-- next statement
COMMENT ON COLUMN judge_call.exhausted IS 'It ran out of output tokens (R47).'
-- next statement
COMMENT ON COLUMN judge_call.early IS 'Siblings were missing when its tries began; it costs the full cohort nothing (R36).'
-- next statement
COMMENT ON COLUMN judge_call.http_status IS 'The judge''s HTTP status, if any came.'
-- next statement
COMMENT ON COLUMN judge_call.endpoint IS 'The endpoint''s name; never its URL.'
-- next statement
COMMENT ON COLUMN judge_call.error_type IS 'The judge''s own type of error.'
-- next statement
COMMENT ON COLUMN judge_call.error_code IS 'The judge''s own code of error.'
-- next statement
COMMENT ON COLUMN judge_call.message IS 'The judge''s own words; may quote prompts; shown nowhere else (L2).'
-- next statement
COMMENT ON COLUMN judge_call.judge_model IS 'The model that the judge says it is.'
-- next statement
COMMENT ON COLUMN judge_call.prompt_tokens IS 'As the judge counted.'
-- next statement
COMMENT ON COLUMN judge_call.completion_tokens IS 'As the judge counted.'
-- next statement
COMMENT ON COLUMN judge_call.latency_ms IS 'From sending to the last byte.'
-- next statement
COMMENT ON COLUMN judge_call.ended_at IS 'When its outcome was stored.'
-- next statement
COMMENT ON COLUMN judge_call.text IS 'What the judge wrote, if it gave no verdict.'
-- next statement
COMMENT ON COLUMN judge_call.reasoning IS 'The judge''s reasoning, where the model shows it.'
-- next statement
COMMENT ON TABLE member_body IS 'Requests as they came, for replies, audits and exact texts.'
-- next statement
COMMENT ON COLUMN member_body.cohort_id IS 'The member''s cohort.'
-- next statement
COMMENT ON COLUMN member_body.rollout_index IS 'The member''s slot.'
-- next statement
COMMENT ON COLUMN member_body.codec IS '0: as it came; 1: zstd.'
-- next statement
COMMENT ON COLUMN member_body.wire IS 'The route''s shape: gym, native or answer.'
-- next statement
COMMENT ON COLUMN member_body.body IS 'The request body, byte for byte, under its codec.'
-- next statement
COMMENT ON TABLE member_reward IS 'A settled reward: written once, in the transaction that completes the cohort, never changed (L3).'
-- next statement
COMMENT ON COLUMN member_reward.cohort_id IS 'The member''s cohort.'
-- next statement
COMMENT ON COLUMN member_reward.rollout_index IS 'The member''s slot.'
-- next statement
COMMENT ON COLUMN member_reward.reward IS 'What the rollout is told.'
-- next statement
COMMENT ON COLUMN member_reward.base_reward IS 'Before shaping terms.'
-- next statement
COMMENT ON COLUMN member_reward.adjustment IS 'Sum of the shaping terms.'
-- next statement
COMMENT ON COLUMN member_reward.mask_sample IS 'The trainer is told to leave the sample out (R34, R37).'
-- next statement
COMMENT ON COLUMN member_reward.defaulted_comparisons IS 'How many of its verdicts were defaulted (R37).'
-- next statement
COMMENT ON INDEX uq_cohort_live IS 'Two incarnations of one identity can never both be live.'
-- next statement
COMMENT ON INDEX ix_cohort_claim IS 'What a judging process may claim, campaign by campaign; finished cohorts are not in it.'
-- next statement
COMMENT ON INDEX ix_cohort_claim_early IS 'Cohorts whose pairs are judged while siblings are missing (R36).'
-- next statement
COMMENT ON INDEX ix_cohort_collecting IS 'Collection deadlines that can still pass (R30).'
-- next statement
COMMENT ON INDEX ix_cohort_evaluating IS 'Evaluation deadlines that can still pass (R31).'
-- next statement
COMMENT ON INDEX ix_cohort_settled IS 'What retention may drop, oldest first (R70).'
-- next statement
COMMENT ON INDEX ix_cohort_payload IS 'Whose texts and bodies retention may drop, oldest first (R70).'
-- next statement
COMMENT ON INDEX ix_cohort_newest IS 'Lists of a campaign, newest first.'
-- next statement
COMMENT ON INDEX ix_cohort_failed IS 'Lists and counts of failures.'
-- next statement
COMMENT ON INDEX ix_api_token_live IS 'Tokens that still count, by campaign.'
-- next statement
COMMENT ON VIEW member IS 'A rollout of a cohort: its response and, once settled, its reward.'
-- next statement
COMMENT ON VIEW cohort_history IS 'What happened to a cohort, in order: changes of state, arrivals, verdicts.'
-- next statement
COMMENT ON VIEW reward_ledger IS 'Every settled reward with its whole provenance.'
-- next statement
COMMENT ON VIEW judge_quality IS 'How each judge model judges, campaign by campaign.'
-- next statement
INSERT INTO service_state (id) VALUES (1)
