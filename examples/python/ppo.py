"""Proximal policy optimisation (Schulman et al. 2017): an agent learns to balance a pole, or to swing a pendulum up.

    pip install gymnasium
    python examples/python/ppo.py CartPole-v1                 or Pendulum-v1; then seed and steps, if wanted

An action is one compiled call, and so is everything that is learnt from a rollout: values, advantages, and all updates of the
weights over all epochs and batches. bench/peers/ppo_torch.py is the same program in PyTorch.
"""
import sys
import time

import gymnasium
import numpy as np

import gradus as gd
from gradus import nn, optim

# environments side by side, steps of each in a rollout, passes over a rollout, rows of an update, factor of rewards
SETTINGS = {
    "CartPole-v1": dict(steps=100_000, environments=8, rollout=32, epochs=20, batch=256, lr=1e-3, discount=0.98, trace=0.8, clip=0.2,
                        entropy=0.0, reward_scale=1.0),
    "Pendulum-v1": dict(steps=150_000, environments=4, rollout=256, epochs=10, batch=64, lr=1e-3, discount=0.9, trace=0.95, clip=0.2,
                        entropy=0.0, reward_scale=0.1),
}


class Environments:
    """Some environments side by side. One that has ended begins anew at once; returns of whole episodes are kept."""

    def __init__(self, name, count, seed):
        self.envs = [gymnasium.make(name, disable_env_checker=True) for _ in range(count)]
        self.observations = np.stack([env.reset(seed=seed + i)[0] for i, env in enumerate(self.envs)]).astype(np.float32)
        self.discrete = isinstance(self.envs[0].action_space, gymnasium.spaces.Discrete)
        self.sums, self.returns = [0.0] * count, []

    def step(self, actions):
        """(rewards, terminated, ended, the observations that followed); self.observations are those to act on next."""
        rewards, terminated, ended = (np.zeros(len(self.envs), np.float32) for _ in range(3))
        following = np.empty_like(self.observations)
        for i, env in enumerate(self.envs):
            following[i], rewards[i], terminated[i], truncated, _ = env.step(actions[i])
            self.sums[i] += float(rewards[i])
            ended[i] = terminated[i] or truncated
            self.observations[i] = following[i]
            if ended[i]:
                self.returns.append(self.sums[i])
                self.sums[i], self.observations[i] = 0.0, env.reset()[0]
        return rewards, terminated, ended, following


class Agent(nn.Module):
    """A policy and a value function, each of two hidden layers of 64."""

    def __init__(self, observations, actions, discrete):
        super().__init__()

        def layer(inputs, outputs, scale=2 ** 0.5):
            return nn.Linear(inputs, outputs, init="orthogonal", init_scale=scale)

        def network(outputs, scale):
            return nn.Sequential(layer(observations, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, outputs, scale))
        self.policy, self.value, self.discrete = network(actions, 0.01), network(1, 1.0), discrete
        if not discrete:
            self.log_deviation = nn.Parameter(gd.zeros(actions))

    def draw(self, observations):
        """An action for each row, as the policy's probabilities say."""
        output = self.policy(observations)
        if self.discrete:
            return gd.categorical(output)
        return output + gd.exp(self.log_deviation) * gd.randn(output.shape)

    def judge(self, observations, actions):
        """(the logarithms of the actions' probabilities, the policy's entropy)"""
        output = self.policy(observations)
        if self.discrete:
            logs = gd.log_softmax(output)
            return gd.gather(logs, actions.unsqueeze(-1), -1).squeeze(-1), -(gd.exp(logs) * logs).sum(-1).mean()
        deviation = gd.exp(self.log_deviation)
        logs = -0.5 * ((actions - output) / deviation).square() - self.log_deviation - 0.5 * np.log(2 * np.pi)
        return logs.sum(-1), (self.log_deviation + 0.5 * np.log(2 * np.pi * np.e)).sum()


def train(name, seed=0, progress=None, **changes):
    """(the agent, the returns of its episodes)"""
    s = {**SETTINGS[name], **changes}
    gd.seed(seed)
    envs = Environments(name, s["environments"], seed)
    space = envs.envs[0].action_space
    agent = Agent(envs.observations.shape[1], int(space.n) if envs.discrete else space.shape[0], envs.discrete)
    adam = optim.Adam(agent, lr=s["lr"], epsilon=1e-5)
    adam.clip_norm(0.5)
    act = gd.compile(agent.draw, detached=True)

    @gd.compile
    def learn(observations, actions, rewards, terminated, ended, following):
        """From a rollout [steps, environments, ..]: all updates, in one call."""
        with gd.no_grad():
            values, next_values = agent.value(observations).squeeze(-1), agent.value(following).squeeze(-1)
            difference = rewards * s["reward_scale"] + s["discount"] * (1 - terminated) * next_values - values
            advantage, reversed_rows = gd.zeros(s["environments"]), []
            for t in reversed(range(s["rollout"])):
                advantage = difference[t] + s["discount"] * s["trace"] * (1 - ended[t]) * advantage
                reversed_rows.append(advantage)
            advantages = gd.stack(reversed_rows[::-1]).flatten()
            targets = advantages + values.flatten()
            x, a = observations.reshape(-1, observations.shape[-1]), actions.reshape(-1, *actions.shape[2:])
            before, _ = agent.judge(x, a)
        for _ in range(s["epochs"]):
            order = gd.permutation(len(x))
            for i in range(0, len(x), s["batch"]):
                rows = order[i:i + s["batch"]]
                states = gd.take(x, rows, 0)
                logs, entropy = agent.judge(states, gd.take(a, rows, 0))
                gain = gd.take(advantages, rows, 0)
                gain = (gain - gain.mean()) / (gd.std(gain) + 1e-8)
                ratio = gd.exp(logs - gd.take(before, rows, 0))
                policy_loss = -gd.minimum(ratio * gain, gd.clip(ratio, 1 - s["clip"], 1 + s["clip"]) * gain).mean()
                value_loss = gd.mse(agent.value(states).squeeze(-1), gd.take(targets, rows, 0))
                loss = adam.minimize(policy_loss + 0.5 * value_loss - s["entropy"] * entropy)
        return loss

    updates = s["steps"] // (s["environments"] * s["rollout"])
    for update in range(updates):
        adam.lr = s["lr"] * (1 - update / updates)
        rows = []
        for _ in range(s["rollout"]):
            observations = envs.observations.copy()
            actions = act(observations).numpy()
            rows.append((observations, actions, *envs.step(actions)))
        learn(*map(np.stack, zip(*rows)))
        if progress and (update + 1) % max(1, updates // 10) == 0:
            progress((update + 1) * s["environments"] * s["rollout"], envs.returns)
    return agent, envs.returns


def report(steps, returns):
    print(f"steps {steps:7}  return {np.mean(returns[-20:]):8.1f}", flush=True)


if __name__ == "__main__":
    name, seed, *steps = [*sys.argv[1:], *["CartPole-v1", "0"][len(sys.argv) - 1:]]
    steps = int(steps[0]) if steps else SETTINGS[name]["steps"]
    begin = time.perf_counter()
    _, returns = train(name, int(seed), report, steps=steps)
    print(f"{steps / (time.perf_counter() - begin):,.0f} steps a second; mean return of the last 20 episodes: {np.mean(returns[-20:]):.1f}")
