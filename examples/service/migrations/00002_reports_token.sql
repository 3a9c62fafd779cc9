-- +goose Up
ALTER TABLE reports ADD COLUMN token INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE reports DROP COLUMN token;
