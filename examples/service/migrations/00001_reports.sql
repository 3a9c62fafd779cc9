-- +goose Up
CREATE TABLE reports (id INTEGER PRIMARY KEY, tick TEXT NOT NULL);

-- +goose Down
DROP TABLE reports;
