-- +goose Up
CREATE TABLE reports (id INTEGER PRIMARY KEY, tick TEXT NOT NULL UNIQUE);

-- +goose Down
DROP TABLE reports;
