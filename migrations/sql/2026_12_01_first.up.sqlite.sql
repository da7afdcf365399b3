CREATE TABLE api_token (
	id VARCHAR(32) NOT NULL,
	campaign VARCHAR(72),
	scope VARCHAR(8) NOT NULL,
	token_hash BLOB NOT NULL,
	note TEXT,
	created_at VARCHAR(24) NOT NULL,
	revoked_at VARCHAR(24),
	CONSTRAINT pk_api_token PRIMARY KEY (id),
	CONSTRAINT uq_api_token_hash UNIQUE (token_hash),
	CONSTRAINT ck_api_token_scope CHECK (scope IN ('read', 'write', 'admin'))
)
-- next statement
CREATE TABLE campaign (
	name VARCHAR(72) NOT NULL,
	created_at VARCHAR(24) NOT NULL,
	CONSTRAINT pk_campaign PRIMARY KEY (name),
	CONSTRAINT ck_campaign_name CHECK (length(name) BETWEEN 1 AND 72)
)
-- next statement
CREATE TABLE judging_profile (
	digest VARCHAR(64) NOT NULL,
	document TEXT NOT NULL,
	created_at VARCHAR(24) NOT NULL,
	CONSTRAINT pk_judging_profile PRIMARY KEY (digest)
)
-- next statement
CREATE TABLE service_state (
	id INTEGER NOT NULL,
	judging_paused BOOLEAN DEFAULT 0 NOT NULL,
	paused_at VARCHAR(24),
	moved_to TEXT,
	moved_at VARCHAR(24),
	clock_offset_ms BIGINT DEFAULT 0 NOT NULL,
	CONSTRAINT pk_service_state PRIMARY KEY (id),
	CONSTRAINT ck_service_state_single CHECK (id = 1),
	CONSTRAINT ck_service_state_judging_paused CHECK (judging_paused IN (0, 1))
)
-- next statement
CREATE TABLE cohort_group (
	campaign VARCHAR(72) NOT NULL,
	kind VARCHAR(8) NOT NULL,
	group_id VARCHAR(256) NOT NULL,
	fingerprint BLOB NOT NULL,
	newest_attempt INTEGER NOT NULL,
	task_index INTEGER,
	prompt_id VARCHAR(256),
	created_at VARCHAR(24) NOT NULL,
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
	id VARCHAR(36) NOT NULL,
	campaign VARCHAR(72) NOT NULL,
	kind VARCHAR(8) NOT NULL,
	group_id VARCHAR(256) NOT NULL,
	attempt INTEGER NOT NULL,
	incarnation INTEGER NOT NULL,
	retired BOOLEAN DEFAULT 0 NOT NULL,
	size INTEGER NOT NULL,
	status VARCHAR(10) NOT NULL,
	failure_kind VARCHAR(24),
	failure_reason TEXT,
	fence BIGINT DEFAULT 0 NOT NULL,
	created_at VARCHAR(24) NOT NULL,
	ready_at VARCHAR(24),
	settled_at VARCHAR(24),
	collection_deadline_at VARCHAR(24) NOT NULL,
	evaluation_deadline_at VARCHAR(24),
	judge VARCHAR(128) NOT NULL,
	profile_digest VARCHAR(64) NOT NULL,
	judges_early BOOLEAN DEFAULT 0 NOT NULL,
	claimed_by BIGINT,
	lease_expires_at VARCHAR(24) NOT NULL,
	idle_claims INTEGER DEFAULT 0 NOT NULL,
	rejudge_of VARCHAR(36),
	answered_from VARCHAR(36),
	results_dropped_at VARCHAR(24),
	payload_dropped_at VARCHAR(24),
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
	CONSTRAINT ck_cohort_counters CHECK (fence >= 0 AND idle_claims >= 0),
	CONSTRAINT ck_cohort_retired CHECK (retired IN (0, 1)),
	CONSTRAINT ck_cohort_judges_early CHECK (judges_early IN (0, 1))
)
-- next statement
CREATE TABLE cohort_event (
	cohort_id VARCHAR(36) NOT NULL,
	fence BIGINT NOT NULL,
	status VARCHAR(10) NOT NULL,
	at VARCHAR(24) NOT NULL,
	detail TEXT,
	CONSTRAINT pk_cohort_event PRIMARY KEY (cohort_id, fence, status),
	CONSTRAINT fk_cohort_event_cohort FOREIGN KEY(cohort_id) REFERENCES cohort (id),
	CONSTRAINT ck_cohort_event_status CHECK (status IN ('collecting', 'ready', 'judging', 'completed', 'failed'))
)
-- next statement
CREATE TABLE comparison (
	cohort_id VARCHAR(36) NOT NULL,
	position INTEGER NOT NULL,
	first INTEGER NOT NULL,
	second INTEGER NOT NULL,
	judge_index INTEGER NOT NULL,
	status VARCHAR(8) NOT NULL,
	score_1 FLOAT,
	score_2 FLOAT,
	ranking FLOAT,
	defaulted BOOLEAN DEFAULT 0 NOT NULL,
	ambiguous BOOLEAN DEFAULT 0 NOT NULL,
	tries INTEGER DEFAULT 0 NOT NULL,
	judge_model TEXT,
	prompt_tokens BIGINT,
	completion_tokens BIGINT,
	latency_ms FLOAT,
	ended_at VARCHAR(24),
	text TEXT,
	CONSTRAINT pk_comparison PRIMARY KEY (cohort_id, first, second, judge_index),
	CONSTRAINT fk_comparison_cohort FOREIGN KEY(cohort_id) REFERENCES cohort (id),
	CONSTRAINT ck_comparison_status CHECK (status IN ('planned', 'done', 'failed', 'unused')),
	CONSTRAINT ck_comparison_slots CHECK (first <> second AND first >= 0 AND second >= 0),
	CONSTRAINT ck_comparison_counters CHECK (judge_index >= 0 AND position >= 0 AND tries >= 0),
	CONSTRAINT ck_comparison_done_has_verdict CHECK (status <> 'done' OR (score_1 IS NOT NULL AND score_2 IS NOT NULL AND ranking IS NOT NULL)),
	CONSTRAINT ck_comparison_score_1 CHECK (score_1 BETWEEN 1 AND 5),
	CONSTRAINT ck_comparison_score_2 CHECK (score_2 BETWEEN 1 AND 5),
	CONSTRAINT ck_comparison_ranking CHECK (ranking BETWEEN 1 AND 6),
	CONSTRAINT ck_comparison_defaulted CHECK (defaulted IN (0, 1)),
	CONSTRAINT ck_comparison_ambiguous CHECK (ambiguous IN (0, 1))
)
-- next statement
CREATE TABLE member_slot (
	cohort_id VARCHAR(36) NOT NULL,
	rollout_index INTEGER NOT NULL,
	response_digest BLOB NOT NULL,
	arrived_at VARCHAR(24) NOT NULL,
	text_escaped BOOLEAN DEFAULT 0 NOT NULL,
	answer_cut BOOLEAN DEFAULT 0 NOT NULL,
	metadata TEXT,
	answer TEXT,
	reasoning TEXT,
	CONSTRAINT pk_member_slot PRIMARY KEY (cohort_id, rollout_index),
	CONSTRAINT fk_member_slot_cohort FOREIGN KEY(cohort_id) REFERENCES cohort (id),
	CONSTRAINT ck_member_slot_rollout_index CHECK (rollout_index BETWEEN 0 AND 2147483647),
	CONSTRAINT ck_member_slot_text_escaped CHECK (text_escaped IN (0, 1)),
	CONSTRAINT ck_member_slot_answer_cut CHECK (answer_cut IN (0, 1))
)
-- next statement
CREATE TABLE judge_call (
	cohort_id VARCHAR(36) NOT NULL,
	first INTEGER NOT NULL,
	second INTEGER NOT NULL,
	judge_index INTEGER NOT NULL,
	try_no INTEGER NOT NULL,
	fence BIGINT NOT NULL,
	outcome VARCHAR(24) NOT NULL,
	budget VARCHAR(12) NOT NULL,
	answered BOOLEAN DEFAULT 0 NOT NULL,
	exhausted BOOLEAN DEFAULT 0 NOT NULL,
	early BOOLEAN DEFAULT 0 NOT NULL,
	http_status INTEGER,
	endpoint TEXT,
	error_type TEXT,
	error_code TEXT,
	message TEXT,
	judge_model TEXT,
	prompt_tokens BIGINT,
	completion_tokens BIGINT,
	latency_ms FLOAT NOT NULL,
	ended_at VARCHAR(24) NOT NULL,
	text TEXT,
	reasoning TEXT,
	CONSTRAINT pk_judge_call PRIMARY KEY (cohort_id, first, second, judge_index, try_no),
	CONSTRAINT fk_judge_call_comparison FOREIGN KEY(cohort_id, first, second, judge_index) REFERENCES comparison (cohort_id, first, second, judge_index),
	CONSTRAINT ck_judge_call_budget CHECK (budget IN ('answers', 'transport', 'none')),
	CONSTRAINT ck_judge_call_counters CHECK (try_no >= 1 AND latency_ms >= 0),
	CONSTRAINT ck_judge_call_answered CHECK (answered IN (0, 1)),
	CONSTRAINT ck_judge_call_exhausted CHECK (exhausted IN (0, 1)),
	CONSTRAINT ck_judge_call_early CHECK (early IN (0, 1))
)
-- next statement
CREATE TABLE member_body (
	cohort_id VARCHAR(36) NOT NULL,
	rollout_index INTEGER NOT NULL,
	codec INTEGER NOT NULL,
	wire VARCHAR(8) NOT NULL,
	body BLOB NOT NULL,
	CONSTRAINT pk_member_body PRIMARY KEY (cohort_id, rollout_index),
	CONSTRAINT fk_member_body_member_slot FOREIGN KEY(cohort_id, rollout_index) REFERENCES member_slot (cohort_id, rollout_index),
	CONSTRAINT ck_member_body_codec CHECK (codec IN (0, 1))
)
-- next statement
CREATE TABLE member_reward (
	cohort_id VARCHAR(36) NOT NULL,
	rollout_index INTEGER NOT NULL,
	reward FLOAT NOT NULL,
	base_reward FLOAT NOT NULL,
	adjustment FLOAT NOT NULL,
	mask_sample BOOLEAN DEFAULT 0 NOT NULL,
	defaulted_comparisons INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT pk_member_reward PRIMARY KEY (cohort_id, rollout_index),
	CONSTRAINT fk_member_reward_member_slot FOREIGN KEY(cohort_id, rollout_index) REFERENCES member_slot (cohort_id, rollout_index),
	CONSTRAINT ck_member_reward_reward CHECK (reward BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308),
	CONSTRAINT ck_member_reward_base CHECK (base_reward BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308),
	CONSTRAINT ck_member_reward_adjustment CHECK (adjustment BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308),
	CONSTRAINT ck_member_reward_mask_sample CHECK (mask_sample IN (0, 1))
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
CREATE TRIGGER cohort_moves_forward BEFORE UPDATE OF status ON cohort FOR EACH ROW WHEN NEW.status <> OLD.status AND NOT ((OLD.status = 'collecting' AND NEW.status = 'ready') OR (OLD.status = 'collecting' AND NEW.status = 'failed') OR (OLD.status = 'ready' AND NEW.status = 'judging') OR (OLD.status = 'ready' AND NEW.status = 'failed') OR (OLD.status = 'judging' AND NEW.status = 'completed') OR (OLD.status = 'judging' AND NEW.status = 'failed'))
BEGIN SELECT RAISE(ABORT, 'a cohort only moves along its life: this change of status is not one of its transitions (L1)'); END
-- next statement
CREATE TRIGGER cohort_identity_is_frozen BEFORE UPDATE OF id, campaign, kind, group_id, attempt, incarnation, size, profile_digest, judge, judges_early, created_at, collection_deadline_at, rejudge_of ON cohort FOR EACH ROW WHEN NOT (NEW.id IS OLD.id) OR NOT (NEW.campaign IS OLD.campaign) OR NOT (NEW.kind IS OLD.kind) OR NOT (NEW.group_id IS OLD.group_id) OR NOT (NEW.attempt IS OLD.attempt) OR NOT (NEW.incarnation IS OLD.incarnation) OR NOT (NEW.size IS OLD.size) OR NOT (NEW.profile_digest IS OLD.profile_digest) OR NOT (NEW.judge IS OLD.judge) OR NOT (NEW.judges_early IS OLD.judges_early) OR NOT (NEW.created_at IS OLD.created_at) OR NOT (NEW.collection_deadline_at IS OLD.collection_deadline_at) OR NOT (NEW.rejudge_of IS OLD.rejudge_of)
BEGIN SELECT RAISE(ABORT, 'identity, size, profile and collection deadline of a cohort never change'); END
-- next statement
CREATE TRIGGER cohort_settled_is_final BEFORE UPDATE OF failure_kind, failure_reason, settled_at, ready_at, evaluation_deadline_at, results_dropped_at ON cohort FOR EACH ROW WHEN OLD.settled_at IS NOT NULL AND (NOT (NEW.failure_kind IS OLD.failure_kind) OR NOT (NEW.failure_reason IS OLD.failure_reason) OR NOT (NEW.settled_at IS OLD.settled_at) OR NOT (NEW.ready_at IS OLD.ready_at) OR NOT (NEW.evaluation_deadline_at IS OLD.evaluation_deadline_at) OR (OLD.results_dropped_at IS NOT NULL AND NEW.results_dropped_at IS NULL))
BEGIN SELECT RAISE(ABORT, 'what a settled cohort says of itself never changes, and what was dropped does not come back (L3)'); END
-- next statement
CREATE TRIGGER cohort_fence_only_rises BEFORE UPDATE OF fence ON cohort FOR EACH ROW WHEN NEW.fence < OLD.fence
BEGIN SELECT RAISE(ABORT, 'a fence only rises (L5)'); END
-- next statement
CREATE TRIGGER cohort_completes_whole BEFORE UPDATE OF status ON cohort FOR EACH ROW WHEN NEW.status = 'completed' AND OLD.status <> 'completed' AND ( (SELECT count(*) FROM member_reward WHERE member_reward.cohort_id = NEW.id) <> (SELECT count(*) FROM member_slot WHERE member_slot.cohort_id = NEW.id) OR EXISTS (SELECT 1 FROM comparison WHERE comparison.cohort_id = NEW.id AND comparison.status IN ('planned', 'failed')))
BEGIN SELECT RAISE(ABORT, 'a cohort completes with a reward for each member and a verdict for each planned comparison (L3)'); END
-- next statement
CREATE TRIGGER member_joins_collecting_cohort BEFORE INSERT ON member_slot FOR EACH ROW WHEN NOT EXISTS (SELECT 1 FROM cohort WHERE cohort.id = NEW.cohort_id AND cohort.status = 'collecting' AND NEW.rollout_index < cohort.size)
BEGIN SELECT RAISE(ABORT, 'a member joins a collecting cohort, in a slot below its size (L3)'); END
-- next statement
CREATE TRIGGER member_response_is_final BEFORE UPDATE OF cohort_id, rollout_index, response_digest, arrived_at, answer, reasoning ON member_slot FOR EACH ROW WHEN NOT (NEW.cohort_id IS OLD.cohort_id) OR NOT (NEW.rollout_index IS OLD.rollout_index) OR NOT (NEW.response_digest IS OLD.response_digest) OR NOT (NEW.arrived_at IS OLD.arrived_at) OR ((NOT (NEW.answer IS OLD.answer) OR NOT (NEW.reasoning IS OLD.reasoning)) AND NOT (NEW.answer IS NULL AND NEW.reasoning IS NULL AND EXISTS (SELECT 1 FROM cohort WHERE cohort.id = NEW.cohort_id AND (cohort.payload_dropped_at IS NOT NULL OR cohort.results_dropped_at IS NOT NULL))))
BEGIN SELECT RAISE(ABORT, 'the first accepted response of a slot is authoritative; retention alone drops its texts (R10, R70)'); END
-- next statement
CREATE TRIGGER member_outlives_all_but_retention BEFORE DELETE ON member_slot FOR EACH ROW WHEN NOT EXISTS (SELECT 1 FROM cohort WHERE cohort.id = OLD.cohort_id AND cohort.results_dropped_at IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'a member is only dropped by retention (R10, R70)'); END
-- next statement
CREATE TRIGGER body_is_final BEFORE UPDATE ON member_body FOR EACH ROW WHEN TRUE
BEGIN SELECT RAISE(ABORT, 'a stored request never changes (R71)'); END
-- next statement
CREATE TRIGGER body_outlives_all_but_retention BEFORE DELETE ON member_body FOR EACH ROW WHEN NOT EXISTS (SELECT 1 FROM cohort WHERE cohort.id = OLD.cohort_id AND (cohort.payload_dropped_at IS NOT NULL OR cohort.results_dropped_at IS NOT NULL))
BEGIN SELECT RAISE(ABORT, 'a stored request is only dropped by retention (R70)'); END
-- next statement
CREATE TRIGGER reward_enters_with_settlement BEFORE INSERT ON member_reward FOR EACH ROW WHEN NOT EXISTS (SELECT 1 FROM cohort WHERE cohort.id = NEW.cohort_id AND cohort.status = 'judging')
BEGIN SELECT RAISE(ABORT, 'rewards are written in the transaction that completes their cohort (L3)'); END
-- next statement
CREATE TRIGGER reward_never_changes BEFORE UPDATE ON member_reward FOR EACH ROW WHEN TRUE
BEGIN SELECT RAISE(ABORT, 'a settled reward never changes (L3)'); END
-- next statement
CREATE TRIGGER reward_outlives_all_but_retention BEFORE DELETE ON member_reward FOR EACH ROW WHEN NOT EXISTS (SELECT 1 FROM cohort WHERE cohort.id = OLD.cohort_id AND cohort.results_dropped_at IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'a settled reward is only dropped by retention (L3)'); END
-- next statement
CREATE TRIGGER comparison_joins_open_cohort BEFORE INSERT ON comparison FOR EACH ROW WHEN EXISTS (SELECT 1 FROM cohort WHERE cohort.id = NEW.cohort_id AND cohort.status IN ('completed', 'failed'))
BEGIN SELECT RAISE(ABORT, 'a settled cohort is not judged any more (L3)'); END
-- next statement
CREATE TRIGGER comparison_verdict_is_final BEFORE UPDATE OF cohort_id, first, second, judge_index, status, score_1, score_2, ranking, defaulted ON comparison FOR EACH ROW WHEN NOT (NEW.cohort_id IS OLD.cohort_id) OR NOT (NEW.first IS OLD.first) OR NOT (NEW.second IS OLD.second) OR NOT (NEW.judge_index IS OLD.judge_index) OR (OLD.status = 'done' AND (NEW.status NOT IN ('done', 'unused') OR NOT (NEW.score_1 IS OLD.score_1) OR NOT (NEW.score_2 IS OLD.score_2) OR NOT (NEW.ranking IS OLD.ranking) OR NOT (NEW.defaulted IS OLD.defaulted))) OR (NEW.status <> OLD.status AND EXISTS (SELECT 1 FROM cohort WHERE cohort.id = NEW.cohort_id AND cohort.status IN ('completed', 'failed')))
BEGIN SELECT RAISE(ABORT, 'a verdict is given once, while its cohort is open (R41)'); END
-- next statement
CREATE TRIGGER comparison_outlives_all_but_retention BEFORE DELETE ON comparison FOR EACH ROW WHEN NOT EXISTS (SELECT 1 FROM cohort WHERE cohort.id = OLD.cohort_id AND cohort.results_dropped_at IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'a comparison is only dropped by retention (R41, R70)'); END
-- next statement
CREATE TRIGGER profile_never_changes BEFORE UPDATE ON judging_profile FOR EACH ROW WHEN TRUE
BEGIN SELECT RAISE(ABORT, 'a judging profile is frozen with the cohorts that name it'); END
-- next statement
CREATE TRIGGER group_keeps_its_prompt BEFORE UPDATE OF campaign, kind, group_id, fingerprint, newest_attempt ON cohort_group FOR EACH ROW WHEN NOT (NEW.campaign IS OLD.campaign) OR NOT (NEW.kind IS OLD.kind) OR NOT (NEW.group_id IS OLD.group_id) OR NOT (NEW.fingerprint IS OLD.fingerprint) OR NEW.newest_attempt < OLD.newest_attempt
BEGIN SELECT RAISE(ABORT, 'a group is bound to its prompt for ever and its newest attempt only rises (R6, R14)'); END
-- next statement
CREATE VIEW member AS
SELECT s.cohort_id, c.campaign, c.kind, c.group_id, c.attempt, c.incarnation, s.rollout_index,
       s.answer, s.reasoning, s.text_escaped, s.answer_cut, s.response_digest,
       r.reward, r.base_reward, r.adjustment,
       CASE WHEN c.status = 'failed' THEN 1 ELSE COALESCE(r.mask_sample, 0) END AS mask_sample,
       COALESCE(r.defaulted_comparisons, 0) AS defaulted_comparisons, s.metadata, s.arrived_at
  FROM member_slot s
  JOIN cohort c ON c.id = s.cohort_id
  LEFT JOIN member_reward r ON r.cohort_id = s.cohort_id AND r.rollout_index = s.rollout_index
-- next statement
CREATE VIEW cohort_history AS
SELECT e.cohort_id, e.at, 'state' AS what, e.status, e.fence,
       NULL AS rollout_index, NULL AS first, NULL AS second, NULL AS judge_index, e.detail
  FROM cohort_event e
UNION ALL
SELECT s.cohort_id, s.arrived_at, 'arrival', NULL, NULL, s.rollout_index, NULL, NULL, NULL, NULL
  FROM member_slot s
UNION ALL
SELECT p.cohort_id, p.ended_at, 'verdict', p.status, NULL, NULL, p.first, p.second, p.judge_index, NULL
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
INSERT INTO service_state (id) VALUES (1)
